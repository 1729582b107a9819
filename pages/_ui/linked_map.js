// The twin map. One canvas and one WebGL context draw the points of all panels; a second canvas ("ink") on top carries
// what is drawn by hand: the lasso, rings, numbered pairs. Brushing is answered here, without the server; Python gets
// only the outline and finds the same rows by the same arithmetic (see linked_map.py).
//
// Words: "panel" = the points of one space; "frame" = a rectangle on the canvas with a view of its own. Twin maps have a
// frame for each panel, a joint map has one frame for both panels.

const MAX_CORNERS = 200; // as in linked_map.py
const MAX_PENDING = 50;
const CLICK_PIXELS = 4; // a press that moves less than this is a click
const HOVER_PIXELS = 12;
const DOUBLE_CLICK_MS = 350;
const GLIDE_MS = 300;
const FRAME_GAP = 8;
const GLYPH_PIXELS = 19;
const MAX_GLYPH_CANDIDATES = 6000; // with more points in view there is no room to read characters
const GREY_PASS = 0, COLOUR_PASS = 1, SELECTED_PASS = 2;

// ---------------------------------------------------------------------------------------------------- reading bytes

const ARRAY_TYPES = {
  f4: Float32Array, f8: Float64Array, i4: Int32Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array,
};

/** Header and a function that turns one of its array entries into a typed array. */
function readBlock(bytes) {
  const copy = bytes.slice(); // typed arrays need an aligned start
  const headerLength = new DataView(copy.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(copy.subarray(4, 4 + headerLength)));
  const start = 4 + headerLength;
  const read = (entry) => {
    const Type = ARRAY_TYPES[entry.type];
    return new Type(copy.buffer, start + entry.at, entry.bytes / Type.BYTES_PER_ELEMENT);
  };
  return { header, read };
}

// What stays the same from run to run comes by a second, invisible mount of this component, once; the picture names it
// by its digest. Either may arrive first.
const stores = new Map(); // by the map's key: { id, read }
const liveMaps = new Set();

function publish(block) {
  stores.set(block.header.store, { id: block.header.id, read: block.read });
  for (const map of liveMaps) map.retry();
}

/** Texts that are decoded only when asked for. */
function readTexts(entry, read) {
  if (!entry) return null;
  const text = read(entry.text), ends = read(entry.ends);
  const decoder = new TextDecoder();
  return (i) => decoder.decode(text.subarray(i ? ends[i - 1] : 0, ends[i]));
}

function readBits(bits, n) {
  const mask = new Uint8Array(n);
  for (let i = 0; i < n; i++) mask[i] = (bits[i >> 3] >> (i & 7)) & 1;
  return mask;
}

// --------------------------------------------------------------------------------------------------------- geometry

/** Even-odd rule, in the same order of operations as in_polygon of linked_map.py. */
function insidePolygon(x, y, corners) {
  let inside = false;
  for (let i = 0, j = corners.length - 1; i < corners.length; j = i++) {
    const a = corners[i], b = corners[j];
    if (a[1] > y !== b[1] > y && x < ((b[0] - a[0]) * (y - a[1])) / (b[1] - a[1]) + a[0]) inside = !inside;
  }
  return inside;
}

function boundsOf(xy, mask) {
  const box = { x0: Infinity, x1: -Infinity, y0: Infinity, y1: -Infinity };
  for (let i = 0; i < xy.length / 2; i++) {
    if (mask && !mask[i]) continue;
    const x = xy[2 * i], y = xy[2 * i + 1];
    if (x < box.x0) box.x0 = x;
    if (x > box.x1) box.x1 = x;
    if (y < box.y0) box.y0 = y;
    if (y > box.y1) box.y1 = y;
  }
  return box;
}

function unionOf(boxes) {
  return boxes.reduce((a, b) => ({
    x0: Math.min(a.x0, b.x0), x1: Math.max(a.x1, b.x1), y0: Math.min(a.y0, b.y0), y1: Math.max(a.y1, b.y1),
  }));
}

/** At most MAX_CORNERS corners in float32, written with the nine digits that bring the same float32 back. */
function toPolygon(points) {
  const step = Math.ceil(points.length / MAX_CORNERS);
  return points
    .filter((_, i) => i % step === 0)
    .map((p) => p.map((v) => Math.fround(Number(Math.fround(v).toPrecision(9)))));
}

const easeInOut = (t) => (t < 0.5 ? 4 * t * t * t : 1 - Math.pow(-2 * t + 2, 3) / 2);
const reducedMotion = () => window.matchMedia('(prefers-reduced-motion: reduce)').matches;

// ------------------------------------------------------------------------------------------------------------ WebGL

// a_state = marker, selected, shown (0 = dimmed by isolating other classes), layer (0 grey, 1 coloured)
const VERTEX_SHADER = `
attribute vec2 a_from, a_to;
attribute vec3 a_colour;
attribute vec4 a_state;
uniform float u_mix, u_size, u_pass, u_fade, u_alpha;
uniform vec2 u_centre, u_scale;
varying vec3 v_colour;
varying float v_alpha, v_marker, v_size;
void main() {
  bool selected = a_state.y > .5;
  float pass = selected ? 2. : a_state.w;
  if (pass != u_pass) { gl_Position = vec4(2., 2., 2., 1.); gl_PointSize = 0.; return; }
  gl_Position = vec4((mix(a_from, a_to, u_mix) - u_centre) * u_scale, 0., 1.);
  v_size = u_size * (selected ? 1.35 : 1.);
  gl_PointSize = v_size;
  v_colour = a_colour;
  v_marker = a_state.x;
  v_alpha = selected ? 1. : u_alpha * (a_state.z > .5 ? 1. : .08) * u_fade;
}`;

const FRAGMENT_SHADER = `
precision mediump float;
varying vec3 v_colour;
varying float v_alpha, v_marker, v_size;
float bar(vec2 p) { return min(max(abs(p.x) - .92, abs(p.y) - .3), max(abs(p.y) - .92, abs(p.x) - .3)); }
float triangle(vec2 p) { return max(abs(p.x) * .87 + p.y * .5, -p.y) - .47; }
float shape(vec2 p) {
  if (v_marker < .5) return length(p) - .86;
  if (v_marker < 1.5) return max(abs(p.x), abs(p.y)) - .74;
  if (v_marker < 2.5) return triangle(vec2(p.x, -p.y - .2));
  if (v_marker < 3.5) return (abs(p.x) + abs(p.y) - .98) * .71;
  if (v_marker < 4.5) return bar(vec2(p.x + p.y, p.x - p.y) * .71);
  if (v_marker < 5.5) return triangle(vec2(p.x, p.y - .2));
  if (v_marker < 6.5) return bar(p);
  return abs(length(p) - .62) - .26;
}
void main() {
  float pixel = 2. / v_size;
  float d = shape(gl_PointCoord * 2. - 1.);
  float cover = 1. - smoothstep(-pixel * .5, pixel * .5, d);
  if (cover <= 0.) discard;
  // A darker rim keeps neighbours apart and pale colours visible; tiny or thin shapes have no room for one.
  bool thin = v_marker > 3.5 && v_marker < 4.5 || v_marker > 5.5;
  float rim = v_size > (thin ? 11. : 5.) ? smoothstep(-pixel * 1.6, -pixel * .6, d) : 0.;
  float alpha = cover * v_alpha;
  gl_FragColor = vec4(mix(v_colour, v_colour * .55, rim) * alpha, alpha);
}`;

class PointPainter {
  constructor(canvas) {
    const gl = canvas.getContext('webgl', { antialias: false, alpha: true, premultipliedAlpha: true });
    if (!gl) throw new Error('no WebGL');
    this.gl = gl;
    this.uploads = 0;
    this.program = linkProgram(gl, VERTEX_SHADER, FRAGMENT_SHADER);
    gl.useProgram(this.program);
    this.attribute = {};
    for (const name of ['a_from', 'a_to', 'a_colour', 'a_state']) {
      this.attribute[name] = gl.getAttribLocation(this.program, name);
      gl.enableVertexAttribArray(this.attribute[name]);
    }
    this.uniform = {};
    for (const name of ['u_mix', 'u_size', 'u_pass', 'u_fade', 'u_alpha', 'u_centre', 'u_scale']) {
      this.uniform[name] = gl.getUniformLocation(this.program, name);
    }
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.clearColor(0, 0, 0, 0);
    this.buffers = new Map();
  }

  upload(name, array) {
    const gl = this.gl;
    if (!this.buffers.has(name)) this.buffers.set(name, gl.createBuffer());
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers.get(name));
    gl.bufferData(gl.ARRAY_BUFFER, array, gl.DYNAMIC_DRAW);
    this.uploads++;
  }

  clear() {
    const { gl } = this;
    gl.disable(gl.SCISSOR_TEST);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.enable(gl.SCISSOR_TEST);
  }

  /** One frame: all panels in it, grey points first, then coloured, then the selected ones of every panel. */
  drawFrame(frame, panels, look) {
    const { gl, uniform } = this;
    const { ratio } = look;
    const box = [frame.x, frame.bottom, frame.width, frame.height].map((v) => Math.round(v * ratio));
    gl.viewport(...box);
    gl.scissor(...box);
    gl.uniform2f(uniform.u_centre, frame.view.x, frame.view.y);
    gl.uniform2f(uniform.u_scale, (2 * frame.view.scale) / frame.width, (2 * frame.view.scale) / frame.height);
    gl.uniform1f(uniform.u_fade, look.anySelected ? 0.35 : 1);
    for (const pass of [GREY_PASS, COLOUR_PASS, SELECTED_PASS]) {
      if (pass === SELECTED_PASS && !look.anySelected) continue;
      gl.uniform1f(uniform.u_pass, pass);
      for (const panel of panels) {
        gl.uniform1f(uniform.u_mix, look.mix);
        const growth = growthOf(frame);
        gl.uniform1f(uniform.u_size, panel.pointSize * growth * ratio);
        gl.uniform1f(uniform.u_alpha, Math.min(0.95, panel.alpha * growth));
        this.bind(panel, look.mix < 1);
        gl.drawArrays(gl.POINTS, 0, panel.n);
      }
    }
  }

  bind(panel, gliding) {
    const { gl } = this;
    const point = (attribute, buffer, size, type, normalised) => {
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers.get(buffer + panel.index));
      gl.vertexAttribPointer(this.attribute[attribute], size, type, normalised, 0, 0);
    };
    point('a_from', gliding ? 'from' : 'xy', 2, gl.FLOAT, false);
    point('a_to', 'xy', 2, gl.FLOAT, false);
    point('a_colour', 'colour', 3, gl.UNSIGNED_BYTE, true);
    point('a_state', 'state', 4, gl.UNSIGNED_BYTE, false);
  }

  release() {
    this.gl.getExtension('WEBGL_lose_context')?.loseContext(); // browsers keep only 8 to 16 contexts
  }
}

function linkProgram(gl, vertexSource, fragmentSource) {
  const program = gl.createProgram();
  for (const [type, source] of [[gl.VERTEX_SHADER, vertexSource], [gl.FRAGMENT_SHADER, fragmentSource]]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost()) {
      throw new Error(gl.getShaderInfoLog(shader));
    }
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  return program;
}

// -------------------------------------------------------------------------------------------------------------- DOM

/** An element; text only ever through textContent, since names of rows may hold HTML. */
function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function button(text, title, onClick) {
  const node = element('button', '', text);
  node.type = 'button';
  node.title = title;
  node.addEventListener('click', onClick);
  return node;
}

const SVG = 'http://www.w3.org/2000/svg';
const MARKER_PATHS = [
  'M6 1.2a4.8 4.8 0 1 0 .01 0Z', 'M2 2H10V10H2Z', 'M6 1.4L11 10H1Z', 'M6 .8L11.2 6L6 11.2L.8 6Z',
  'M2.7 1.2L6 4.5L9.3 1.2L10.8 2.7L7.5 6L10.8 9.3L9.3 10.8L6 7.5L2.7 10.8L1.2 9.3L4.5 6L1.2 2.7Z',
  'M6 10.6L1 2H11Z', 'M4.5 1H7.5V4.5H11V7.5H7.5V11H4.5V7.5H1V4.5H4.5Z',
  'M6 1a5 5 0 1 0 .01 0ZM6 3.6a2.4 2.4 0 1 1-.01 0Z',
];

function markerIcon(marker, rgb) {
  const svg = document.createElementNS(SVG, 'svg');
  for (const [name, value] of [['width', 12], ['height', 12], ['aria-hidden', 'true']]) svg.setAttribute(name, value);
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', MARKER_PATHS[marker]);
  path.setAttribute('fill', rgb);
  path.setAttribute('fill-rule', 'evenodd');
  svg.append(path);
  return svg;
}

const number = (v) => v.toLocaleString('en-GB', { maximumSignificantDigits: 4 });
const count = (v) => v.toLocaleString('en-GB');

// -------------------------------------------------------------------------------------------------------------- map

class LinkedMap {
  constructor(host) {
    this.host = host;
    this.panels = [];
    this.frames = [];
    this.pending = []; // events that no payload has acknowledged
    this.rev = 0;
    this.tool = 'lasso';
    this.mode = 'replace';
    this.only = new Set(); // isolated classes (legend positions); empty = all
    this.hovered = null;
    this.clicked = null;
    this.gesture = null;
    this.touches = new Map();
    this.mix = 1;
    this.counters = { frames: 0, selected: [], uploads: 0, lastSelectMs: null, lastRoundTripMs: null, lastSetMs: null };
    this.buildDom();
    this.startPainter();
    this.listen();
  }

  // --- DOM

  buildDom() {
    this.stage = element('div', 'stage');
    this.stage.tabIndex = 0;
    this.glCanvas = element('canvas', 'gl');
    this.inkCanvas = element('canvas', 'ink');
    this.glCanvas.setAttribute('role', 'img');
    this.ink = this.inkCanvas.getContext('2d');
    this.corners = element('div'); // frames and titles
    this.tip = element('div', 'tip');
    this.tipGlyph = element('div', 'glyph');
    this.tipPicture = element('img', 'picture');
    this.tipPicture.alt = '';
    this.tipName = element('div', 'name');
    this.tipMore = element('div', 'more');
    this.tip.append(this.tipGlyph, this.tipName, this.tipMore);
    this.notice = element('div', 'notice');
    this.notice.setAttribute('role', 'status');
    this.stage.append(this.glCanvas, this.inkCanvas, this.corners, this.tip, this.notice);
    this.legend = element('div', 'legend');
    this.host.replaceChildren(this.buildToolbar(), this.stage, this.legend);
  }

  buildToolbar() {
    const bar = element('div', 'bar');
    bar.setAttribute('role', 'toolbar');
    this.toolButtons = {
      lasso: button('Lasso', 'Drag to draw round points (L)', () => this.setTool('lasso')),
      box: button('Box', 'Drag a rectangle (B)', () => this.setTool('box')),
      pan: button('Pan', 'Drag the map (P); also Shift + drag or the middle button', () => this.setTool('pan')),
    };
    this.modeButtons = {
      add: button('+ Add', 'Add to the selection; also Ctrl + drag', () => this.setMode('add')),
      subtract: button('− Take', 'Take from the selection; also Alt + drag', () => this.setMode('subtract')),
    };
    const group = (...buttons) => {
      const node = element('span', 'group');
      node.append(...buttons);
      return node;
    };
    this.status = element('span', 'status');
    this.status.setAttribute('aria-live', 'polite');
    bar.append(
      group(...Object.values(this.toolButtons)),
      group(...Object.values(this.modeButtons)),
      group(
        button('Fit all', 'Show every point (F)', () => this.fitAll()),
        button('Fit selection', 'Zoom to the selected points (S)', () => this.fitSelection()),
        button('Clear', 'Select nothing (Esc or double click)', () => this.clear()),
      ),
      this.status,
    );
    this.setTool('lasso');
    this.setMode('replace');
    return bar;
  }

  setTool(tool) {
    this.tool = tool;
    this.stage.dataset.tool = tool;
    for (const [name, node] of Object.entries(this.toolButtons)) node.setAttribute('aria-pressed', name === tool);
  }

  /** Pressing the active mode again goes back to "replace". */
  setMode(mode) {
    this.mode = mode === this.mode ? 'replace' : mode;
    for (const [name, node] of Object.entries(this.modeButtons)) node.setAttribute('aria-pressed', name === this.mode);
  }

  say(sentence) {
    this.notice.textContent = sentence;
    this.notice.style.display = sentence ? 'flex' : 'none';
  }

  // --- WebGL, which may be missing or be taken away

  startPainter() {
    try {
      this.painter = new PointPainter(this.glCanvas);
      this.say('');
    } catch (error) {
      this.painter = null;
      this.say(
        'This browser draws no WebGL, which the map needs. Switch on hardware acceleration or try another browser; ' +
          'the tables and the other pages work without it.',
      );
    }
  }

  onContextLost(event) {
    event.preventDefault(); // allows the browser to give it back
    this.painter = null;
    this.say('The browser has taken the graphics memory of this map away. It comes back by itself, or reload the page.');
  }

  onContextRestored() {
    this.startPainter();
    for (const panel of this.panels) this.uploadPanel(panel, true);
    this.redraw();
  }

  // --- data from Python

  /** Take a picture, or keep it until the arrays it speaks of are there. */
  receive(block, setState) {
    this.setState = setState;
    const store = stores.get(block.header.arrays.store);
    const ready = store?.id === block.header.arrays.id;
    this.postponed = ready ? null : block;
    if (ready) this.set(block.header, (entry) => (entry.in === 'arrays' ? store : block).read(entry));
  }

  retry() {
    if (this.postponed) this.receive(this.postponed, this.setState);
  }

  set(header, read) {
    const started = performance.now();
    this.header = header;
    this.stage.style.height = `${header.height}px`;
    this.glCanvas.setAttribute('aria-label', header.alt);
    this.stage.setAttribute('aria-label', `${header.alt} L lasso, B box, P pan, F fit, Escape clears.`);
    this.palette = read(header.palette);
    this.markers = read(header.markers);
    this.links = header.links ? read(header.links) : null;
    const before = this.panels;
    const paletteChanged = this.paletteId !== header.palette.id;
    this.paletteId = header.palette.id;
    this.panels = header.panels.map((entry, i) => this.readPanel(entry, read, i, before[i]));
    const classes = JSON.stringify(header.legend.names);
    if (classes !== this.classes) this.only.clear(); // what was isolated may not be there any more
    this.classes = classes;
    this.acknowledge(header.ack);
    this.layOut(before);
    this.startGlide(before);
    this.panels.forEach((panel, i) => this.takeSelection(panel, header.panels[i], read));
    this.panels.forEach((panel) => this.uploadPanel(panel, paletteChanged));
    this.hovered = this.stillThere(this.hovered);
    this.clicked = this.stillThere(this.clicked);
    this.buildLegend();
    this.showCounts();
    this.redraw();
    this.counters.lastSetMs = performance.now() - started;
  }

  readPanel(entry, read, index, old) {
    const panel = {
      index, n: entry.n, title: entry.title,
      xy: read(entry.xy), xyId: entry.xy.id,
      ids: read(entry.ids), idsId: entry.ids.id,
      codes: read(entry.codes), codesId: entry.codes.id,
      partner: entry.partner ? read(entry.partner) : null,
      values: entry.values ? read(entry.values) : null,
      names: readTexts(entry.names, read),
      media: readTexts(entry.media, read),
      pictures: readTexts(entry.pictures, read),
      selected: old && old.idsId === entry.ids.id ? old.selected : new Uint8Array(entry.n),
      sent: {}, // what the painter holds of this panel, by id
    };
    if (old && old.n === panel.n) panel.sent = old.sent;
    const [size, alpha] = this.pointLook(panel.n);
    panel.pointSize = size;
    panel.alpha = alpha;
    return panel;
  }

  /** Many points: small and see-through; few: large and solid. Marker shapes need about seven pixels to be told apart. */
  pointLook(n) {
    const size = this.header.point_size ?? Math.max(2.6, Math.min(10, 34 / Math.pow(Math.max(n, 1), 0.24) + 0.2));
    return [size, n > 20000 ? 0.55 : n > 3000 ? 0.75 : 0.9];
  }

  /** Events up to this one are settled; Python's selection counts again once none is open. */
  acknowledge(rev) {
    if (this.pending.length && rev >= this.pending[this.pending.length - 1].rev) {
      this.counters.lastRoundTripMs = performance.now() - this.emittedAt;
    }
    this.pending = this.pending.filter((event) => event.rev > rev);
    this.rev = Math.max(this.rev, rev);
  }

  takeSelection(panel, entry, read) {
    if (this.pending.length) return; // a newer brush of this browser is on its way to Python
    panel.selected = readBits(read(entry.selected), panel.n);
    panel.selectedVersion = entry.selected.id;
  }

  /** The same rows at new places glide there; anything else is simply drawn. */
  startGlide(before) {
    const moved = this.panels.some((p, i) => before[i] && before[i].xyId !== p.xyId);
    if (!moved) {
      if (this.mix < 1) this.panels.forEach((p, i) => (p.from = before[i]?.from)); // go on with the glide under way
      return;
    }
    const sameRows = this.panels.length === before.length && this.panels.every((p, i) => p.idsId === before[i].idsId);
    if (!sameRows || this.header.view !== this.view.before || reducedMotion()) {
      this.mix = 1;
      return;
    }
    const mix = this.mix;
    this.panels.forEach((panel, i) => {
      panel.from = positionsAt(before[i], mix);
      this.painter?.upload(`from${i}`, panel.from);
    });
    this.mix = 0;
    this.glideStart = performance.now();
  }

  uploadPanel(panel, force) {
    if (!this.painter) return;
    const { sent, index } = panel;
    if (force) for (const key of Object.keys(sent)) delete sent[key];
    if (sent.xy !== panel.xyId) this.painter.upload(`xy${index}`, panel.xy);
    if (force && panel.from) this.painter.upload(`from${index}`, panel.from);
    if (sent.codes !== panel.codesId) this.painter.upload(`colour${index}`, this.coloursOf(panel));
    sent.xy = panel.xyId;
    sent.codes = panel.codesId;
    this.uploadState(panel);
  }

  coloursOf(panel) {
    const rgb = new Uint8Array(3 * panel.n);
    for (let i = 0; i < panel.n; i++) {
      const at = 3 * panel.codes[i];
      rgb[3 * i] = this.palette[at];
      rgb[3 * i + 1] = this.palette[at + 1];
      rgb[3 * i + 2] = this.palette[at + 2];
    }
    return rgb;
  }

  uploadState(panel) {
    if (!this.painter) return;
    const { legend } = this.header;
    const grey = new Uint8Array(this.palette.length / 3);
    grey[grey.length - 1] = 1;
    for (const code of legend.other ?? []) grey[code] = 1;
    const state = new Uint8Array(4 * panel.n);
    for (let i = 0; i < panel.n; i++) {
      const code = panel.codes[i];
      state[4 * i] = this.header.joint ? (panel.index === 0 ? 0 : 4) : this.markers[code];
      state[4 * i + 1] = panel.selected[i];
      state[4 * i + 2] = !this.only.size || this.only.has(code) ? 1 : 0;
      state[4 * i + 3] = grey[code] ? 0 : 1;
    }
    this.painter.upload(`state${panel.index}`, state);
  }

  // --- frames and views

  /** Frames from the size of the stage; a view is kept unless the rows or the projection are other ones. */
  layOut(before = this.panels) {
    const width = this.stage.clientWidth, height = this.stage.clientHeight;
    if (!width || !this.panels.length) return;
    this.ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.glCanvas, this.inkCanvas]) {
      const w = Math.round(width * this.ratio), h = Math.round(height * this.ratio);
      if (canvas.width !== w) canvas.width = w;
      if (canvas.height !== h) canvas.height = h;
    }
    const boxes = frameBoxes(this.header.joint ? 1 : this.panels.length, width, height);
    const old = this.frames;
    this.frames = boxes.map((box, i) => {
      const panels = this.header.joint ? [0, ...(this.panels.length > 1 ? [1] : [])] : [i];
      return { ...box, bottom: height - box.y - box.height, panels, view: null, touched: false };
    });
    const sameView =
      old.length === this.frames.length &&
      this.view?.name === this.header.view &&
      this.panels.length === before.length &&
      this.panels.every((p, i) => p.idsId === before[i].idsId);
    this.view = { name: this.header.view, before: this.view?.name ?? this.header.view };
    this.frames.forEach((frame, i) => this.keepOrFit(frame, sameView ? old[i] : null));
    this.buildCorners();
  }

  keepOrFit(frame, old) {
    const whole = this.viewOf(frame, this.boundsIn(frame));
    frame.fullScale = whole.scale;
    const resized = old && (old.width !== frame.width || old.height !== frame.height);
    if (!old || (resized && !old.touched)) {
      frame.view = whole;
      return;
    }
    const growth = Math.min(frame.width / old.width, frame.height / old.height);
    frame.view = { ...old.view, scale: old.view.scale * growth };
    frame.touched = old.touched;
  }

  boundsIn(frame, onlySelected) {
    return unionOf(frame.panels.map((i) => boundsOf(this.panels[i].xy, onlySelected && this.panels[i].selected)));
  }

  /** Centre and scale (pixels a unit, the same both ways: distances may be compared by eye). */
  viewOf(frame, box) {
    if (!(box.x1 >= box.x0)) return { x: 0, y: 0, scale: 1 };
    const margin = 26; // room for a title and for half a point
    const spanX = box.x1 - box.x0, spanY = box.y1 - box.y0;
    const scale = Math.min((frame.width - 2 * margin) / spanX, (frame.height - 2 * margin) / spanY);
    return { x: (box.x0 + box.x1) / 2, y: (box.y0 + box.y1) / 2, scale: Number.isFinite(scale) ? scale : 1 };
  }

  fitAll() {
    for (const frame of this.frames) {
      frame.view = this.viewOf(frame, this.boundsIn(frame));
      frame.touched = false;
    }
    this.redraw();
  }

  fitSelection() {
    for (const frame of this.frames) {
      const box = this.boundsIn(frame, true);
      if (!(box.x1 >= box.x0)) continue;
      const all = this.viewOf(frame, this.boundsIn(frame));
      const close = this.viewOf(frame, box);
      // A single point has no extent; go no nearer than 40 times the whole.
      const scale = box.x1 > box.x0 || box.y1 > box.y0 ? close.scale * 0.85 : all.scale * 8;
      frame.view = { ...close, scale: Math.min(scale, all.scale * 40) };
      frame.touched = true;
    }
    this.redraw();
  }

  toPixels(frame, x, y) {
    const { view } = frame;
    return [
      frame.x + frame.width / 2 + (x - view.x) * view.scale,
      frame.y + frame.height / 2 - (y - view.y) * view.scale,
    ];
  }

  toData(frame, px, py) {
    const { view } = frame;
    return [
      view.x + (px - frame.x - frame.width / 2) / view.scale,
      view.y - (py - frame.y - frame.height / 2) / view.scale,
    ];
  }

  frameOf(panelIndex) {
    return this.frames[this.header.joint ? 0 : panelIndex];
  }

  pixelsOf(panel, i) {
    let x = panel.xy[2 * i], y = panel.xy[2 * i + 1];
    if (this.mix < 1 && panel.from) {
      x = panel.from[2 * i] + (x - panel.from[2 * i]) * this.mix;
      y = panel.from[2 * i + 1] + (y - panel.from[2 * i + 1]) * this.mix;
    }
    return this.toPixels(this.frameOf(panel.index), x, y);
  }

  // --- drawing

  redraw() {
    if (this.frameRequest) return;
    this.frameRequest = requestAnimationFrame(() => {
      this.frameRequest = null;
      if (this.mix < 1) this.glideOn();
      this.draw();
    });
  }

  glideOn() {
    const t = Math.min(1, (performance.now() - this.glideStart) / GLIDE_MS);
    this.mix = t < 1 ? Math.min(easeInOut(t), 0.9999) : 1;
    if (t < 1) this.redraw();
  }

  draw() {
    if (!this.header || !this.frames.length) return;
    const anySelected = this.counters.selected.some((n) => n > 0);
    if (this.painter) {
      this.painter.clear();
      for (const frame of this.frames) {
        const panels = frame.panels.map((i) => this.panels[i]);
        this.painter.drawFrame(frame, panels, { ratio: this.ratio, anySelected, mix: this.mix });
      }
      this.counters.uploads = this.painter.uploads;
    }
    this.drawInk();
    this.counters.frames++;
  }

  drawInk() {
    const { ink } = this;
    const style = getComputedStyle(this.stage);
    this.colours = {
      text: style.getPropertyValue('--st-text-color').trim() || style.color,
      page: style.getPropertyValue('--st-background-color').trim() || 'Canvas',
      accent: style.getPropertyValue('--st-primary-color').trim() || 'Highlight',
    };
    ink.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    ink.clearRect(0, 0, this.stage.clientWidth, this.stage.clientHeight);
    this.drawGlyphs();
    this.drawLinks();
    if (this.clicked) this.drawRing(this.clicked, 2.5);
    if (this.hovered) this.drawHovered();
    this.drawGesture();
    this.showHints();
  }

  inFrame(frame, draw) {
    const { ink } = this;
    ink.save();
    ink.beginPath();
    ink.rect(frame.x, frame.y, frame.width, frame.height);
    ink.clip();
    draw();
    ink.restore();
  }

  /** Characters in place of dots wherever there is room for one; the nearer one looks, the more of them. */
  drawGlyphs() {
    const anySelected = this.counters.selected.some((n) => n > 0);
    for (const panel of this.panels) {
      if (!panel.media) continue;
      const frame = this.frameOf(panel.index);
      const visible = this.visibleIn(frame, panel, MAX_GLYPH_CANDIDATES);
      if (!visible) continue;
      const taken = new Map();
      this.inFrame(frame, () => {
        this.ink.font = `${GLYPH_PIXELS}px "Noto Color Emoji", "Apple Color Emoji", "Segoe UI Emoji", sans-serif`;
        this.ink.textAlign = 'center';
        this.ink.textBaseline = 'middle';
        this.ink.fillStyle = this.colours.text;
        for (const i of visible) {
          const [x, y] = this.pixelsOf(panel, i);
          const glyph = glyphOf(panel, i);
          if (!glyph || !claim(taken, x, y)) continue;
          const shown = !this.only.size || this.only.has(panel.codes[i]);
          this.ink.globalAlpha = (anySelected && !panel.selected[i]) || !shown ? 0.2 : 1;
          this.ink.fillText(glyph, x, y + 1);
        }
      });
    }
  }

  /** Positions of the points inside the frame, or null if there are more than ``most``. */
  visibleIn(frame, panel, most) {
    const [x0, y1] = this.toData(frame, frame.x, frame.y);
    const [x1, y0] = this.toData(frame, frame.x + frame.width, frame.y + frame.height);
    const { xy } = panel;
    const visible = [];
    for (let i = 0; i < panel.n; i++) {
      if (xy[2 * i] < x0 || xy[2 * i] > x1 || xy[2 * i + 1] < y0 || xy[2 * i + 1] > y1) continue;
      if (visible.push(i) > most) return null;
    }
    return visible;
  }

  /** Pairs as numbers on both panels; numbers that meet on one point share a badge ("1–10"). */
  drawLinks() {
    if (!this.links || this.panels.length < 2) return;
    const pairs = this.links.length / 2;
    if (this.header.link_lines) this.drawLinkLines(pairs);
    for (const panel of this.panels) {
      const numbers = new Map();
      for (let k = 0; k < pairs; k++) {
        const at = this.links[2 * k + panel.index];
        if (at < 0) continue;
        if (!numbers.has(at)) numbers.set(at, []);
        numbers.get(at).push(k + 1);
      }
      this.inFrame(this.frameOf(panel.index), () => {
        for (const [at, list] of numbers) this.drawBadge(panel, at, badgeText(list), pairs);
      });
    }
  }

  drawLinkLines(pairs) {
    const { ink, panels } = this;
    ink.save();
    ink.strokeStyle = this.colours.text;
    ink.globalAlpha = pairs > 60 ? 0.18 : 0.4;
    ink.lineWidth = 1;
    ink.beginPath();
    for (let k = 0; k < pairs; k++) {
      const a = this.links[2 * k], b = this.links[2 * k + 1];
      if (a < 0 || b < 0) continue;
      const from = this.pixelsOf(panels[0], a), to = this.pixelsOf(panels[1], b);
      if (!within(this.frameOf(0), from) || !within(this.frameOf(1), to)) continue; // a line to nowhere misleads
      ink.moveTo(...from);
      ink.lineTo(...to);
    }
    ink.stroke();
    ink.restore();
  }

  drawBadge(panel, at, text, pairs) {
    const { ink } = this;
    const [x, y] = this.pixelsOf(panel, at);
    const size = pairs > 60 ? 9 : 11;
    ink.font = `600 ${size}px ${getComputedStyle(this.stage).fontFamily}`;
    ink.textAlign = 'center';
    ink.textBaseline = 'middle';
    const width = Math.max(size + 5, ink.measureText(text).width + 7), height = size + 5;
    ink.beginPath();
    if (panel.index === 1 && this.header.joint) ink.rect(x - width / 2, y - height / 2, width, height);
    else ink.roundRect(x - width / 2, y - height / 2, width, height, height / 2);
    ink.fillStyle = this.colours.text;
    ink.fill();
    ink.lineWidth = 1.5;
    ink.strokeStyle = this.colours.page;
    ink.stroke();
    ink.fillStyle = this.colours.page;
    ink.fillText(text, x, y + 0.5);
  }

  drawRing(point, width) {
    const panel = this.panels[point.panel];
    const frame = this.frameOf(point.panel);
    const [x, y] = this.pixelsOf(panel, point.i);
    this.inFrame(frame, () => {
      const { ink } = this;
      ink.beginPath();
      ink.arc(x, y, (panel.pointSize * growthOf(frame)) / 2 + 4, 0, 2 * Math.PI);
      ink.lineWidth = width + 2;
      ink.strokeStyle = this.colours.page;
      ink.stroke();
      ink.lineWidth = width;
      ink.strokeStyle = this.colours.text;
      ink.stroke();
    });
  }

  /** The point under the cursor and, on the other side, the one it is linked to. */
  drawHovered() {
    this.drawRing(this.hovered, 2);
    const other = this.partnerOf(this.hovered);
    if (other) this.drawRing(other, 2);
  }

  partnerOf(point) {
    const at = this.panels[point.panel].partner?.[point.i] ?? -1;
    return at < 0 ? null : { panel: 1 - point.panel, i: at };
  }

  drawGesture() {
    const outline = this.gesture?.outline;
    if (!outline || outline.length < 2) return;
    const { ink } = this;
    ink.beginPath();
    outline.forEach(([x, y], k) => (k ? ink.lineTo(x, y) : ink.moveTo(x, y)));
    ink.closePath();
    ink.globalAlpha = 0.12;
    ink.fillStyle = this.colours.accent;
    ink.fill('evenodd');
    ink.globalAlpha = 1;
    ink.lineWidth = 1.5;
    ink.strokeStyle = this.colours.accent;
    ink.stroke();
  }

  buildCorners() {
    this.corners.replaceChildren(
      ...this.frames.map((frame) => {
        const node = element('div', 'frame');
        const { x: left, y: top, width, height } = frame;
        Object.assign(node.style, { left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` });
        const titles = frame.panels.map((i) => {
          const mark = this.header.joint && frame.panels.length > 1 ? ['● ', '✕ '][i] : '';
          return `${mark}${this.panels[i].title}`;
        });
        frame.hint = element('div', 'hint');
        node.append(element('div', 'title', titles.join('   ')), frame.hint);
        return node;
      }),
    );
  }

  showHints() {
    for (const frame of this.frames) {
      const points = frame.panels.reduce((sum, i) => sum + this.panels[i].n, 0);
      let text = '';
      if (!points) text = 'No points.';
      else if (frame.touched && !frame.panels.some((i) => this.anyVisible(frame, this.panels[i]))) {
        text = 'No points in view: press “Fit all”.';
      }
      if (frame.hint.textContent !== text) frame.hint.textContent = text;
    }
  }

  anyVisible(frame, panel) {
    const visible = this.visibleIn(frame, panel, 0);
    return visible === null || visible.length > 0;
  }

  showCounts() {
    this.counters.selected = this.panels.map((p) => p.selected.reduce((sum, s) => sum + s, 0));
    const any = this.counters.selected.some((n) => n > 0);
    const parts = this.panels.map((p, i) => `${count(this.counters.selected[i])} of ${count(p.n)}`);
    this.status.textContent = any ? `${parts.join(' · ')} selected` : '';
  }

  // --- legend

  buildLegend() {
    const { legend, show_legend: wanted } = this.header;
    const signature = JSON.stringify([legend, wanted, this.paletteId, [...this.only], this.header.joint]);
    if (signature === this.legendSignature) return; // rebuilding would steal the focus from its search box
    this.legendSignature = signature;
    const nodes = !wanted ? [] : legend.kind === 'value' ? this.rampLegend(legend) : this.classLegend(legend);
    this.legend.replaceChildren(...nodes);
  }

  rgb(code) {
    return `rgb(${this.palette.slice(3 * code, 3 * code + 3).join(' ')})`;
  }

  rampLegend(legend) {
    const ramp = element('span', 'ramp');
    const stops = Array.from({ length: 9 }, (_, i) => this.rgb(Math.round((i * 255) / 8)));
    ramp.style.background = `linear-gradient(to right, ${stops.join(', ')})`;
    const nodes = [element('span', 'what', legend.title), element('span', '', number(legend.low)), ramp];
    nodes.push(element('span', '', number(legend.high)));
    if (legend.missing) nodes.push(markerIcon(this.markers[256], this.rgb(256)), element('span', '', '(none)'));
    return nodes;
  }

  classLegend(legend) {
    const totals = legend.names.map((_, i) => legend.counts.reduce((sum, c) => sum + c[i], 0));
    const used = legend.names.map((_, i) => i).filter((i) => totals[i] > 0);
    if (used.length < 2) return []; // one class needs no legend
    const other = new Set(legend.other);
    const named = used.filter((i) => !other.has(i));
    const rest = used.filter((i) => other.has(i));
    const none = legend.names.length - 1;
    const entry = (text, codes, marker) => this.legendEntry(text, codes, totals, legend.counts, marker);
    const nodes = [element('span', 'what', legend.title)];
    if (rest.length) nodes.push(this.legendSearch(legend, used)); // before the classes, where it is not scrolled away
    nodes.push(...named.filter((i) => i !== none).map((i) => entry(legend.names[i], [i], this.markers[i])));
    if (rest.length) nodes.push(entry(`other (${count(rest.length)} classes)`, rest, 0));
    if (totals[none]) nodes.push(entry(legend.names[none], [none], this.markers[none]));
    return nodes;
  }

  legendEntry(text, codes, totals, counts, marker) {
    const on = codes.every((c) => this.only.has(c));
    const total = codes.reduce((sum, c) => sum + totals[c], 0);
    const node = button('', '', (event) => this.isolate(codes, event.ctrlKey || event.metaKey || event.shiftKey));
    const sides = counts.map((c) => count(codes.reduce((sum, code) => sum + c[code], 0))).join(' · ');
    node.title = `${text}: ${sides} points. Click: only this class; Ctrl + click: this class too.`;
    node.setAttribute('aria-pressed', on && this.only.size > 0);
    node.classList.toggle('off', this.only.size > 0 && !on);
    node.append(
      markerIcon(this.header.joint ? 0 : marker, this.rgb(codes[0])),
      element('span', '', text),
      element('span', 'count', count(total)),
    );
    return node;
  }

  legendSearch(legend, used) {
    const input = element('input');
    input.type = 'search';
    input.placeholder = 'show only class …';
    input.setAttribute('aria-label', 'Show only one class');
    const list = element('datalist');
    list.id = 'classes';
    list.append(...used.map((i) => Object.assign(element('option'), { value: legend.names[i] })));
    input.setAttribute('list', list.id);
    input.addEventListener('change', () => {
      const code = used.find((i) => legend.names[i] === input.value);
      if (code !== undefined) this.isolate([code], false);
    });
    const span = element('span');
    span.append(input, list);
    return span;
  }

  /** Show these classes alone, or (with ``too``) add them to those shown; the only one shown again shows all. */
  isolate(codes, too) {
    const on = codes.every((c) => this.only.has(c));
    if (too) codes.forEach((c) => (on ? this.only.delete(c) : this.only.add(c)));
    else this.only = on && this.only.size === codes.length ? new Set() : new Set(codes);
    this.panels.forEach((panel) => this.uploadState(panel));
    this.buildLegend();
    this.redraw();
  }

  // --- pointer and keys

  listen() {
    this.stopListening = new AbortController();
    const on = (target, type, handler, options = {}) =>
      target.addEventListener(type, handler.bind(this), { signal: this.stopListening.signal, ...options });
    on(this.inkCanvas, 'pointerdown', this.onPointerDown);
    on(this.inkCanvas, 'pointermove', this.onPointerMove);
    on(this.inkCanvas, 'pointerup', this.onPointerUp);
    on(this.inkCanvas, 'pointercancel', this.onPointerCancel);
    on(this.inkCanvas, 'pointerleave', this.onPointerLeave);
    on(this.inkCanvas, 'dblclick', this.onDoubleClick);
    on(this.inkCanvas, 'wheel', this.onWheel, { passive: false });
    on(this.inkCanvas, 'contextmenu', (event) => this.gesture && event.preventDefault());
    on(this.stage, 'keydown', this.onKey);
    on(this.stage, 'keyup', () => this.stage.classList.add('keyed'));
    on(this.glCanvas, 'webglcontextlost', this.onContextLost);
    on(this.glCanvas, 'webglcontextrestored', this.onContextRestored);
    this.resizeObserver = new ResizeObserver(() => {
      this.layOut();
      this.redraw();
    });
    this.resizeObserver.observe(this.stage);
  }

  locate(event) {
    const box = this.inkCanvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  frameAt(px, py) {
    return this.frames.find((f) => within(f, [px, py])) ?? null;
  }

  onPointerDown(event) {
    if (event.button > 1 || !this.header) return;
    const at = this.locate(event);
    const frame = this.frameAt(...at);
    if (!frame) return;
    event.preventDefault(); // no text selection, no autoscroll by the middle button
    this.stage.classList.remove('keyed');
    this.stage.focus({ preventScroll: true }); // so that Esc and the other keys reach the map
    this.inkCanvas.setPointerCapture(event.pointerId);
    this.touches.set(event.pointerId, at);
    if (this.touches.size === 2) return this.startPinch();
    const pan = this.tool === 'pan' || event.shiftKey || event.button === 1;
    const mode = event.ctrlKey || event.metaKey ? 'add' : event.altKey ? 'subtract' : this.mode;
    this.gesture = { frame, start: at, last: at, kind: pan ? 'pan' : this.tool, mode, moved: false, outline: null };
    this.stage.classList.add('dragging');
    this.hideTip();
  }

  onPointerMove(event) {
    const at = this.locate(event);
    if (!this.gesture) return this.hover(at);
    if (this.touches.has(event.pointerId)) this.touches.set(event.pointerId, at);
    if (this.gesture.kind === 'pinch') return this.pinch();
    this.drag(at);
  }

  drag(at) {
    const g = this.gesture;
    g.moved ||= Math.hypot(at[0] - g.start[0], at[1] - g.start[1]) >= CLICK_PIXELS;
    if (!g.moved) return;
    if (g.kind === 'pan') {
      this.moveView(g.frame, at[0] - g.last[0], at[1] - g.last[1]);
      g.last = at;
    } else if (g.kind === 'box') {
      const [x0, y0] = g.start;
      g.outline = [[x0, y0], [at[0], y0], at, [x0, at[1]]];
      this.redraw();
    } else {
      g.outline ??= [g.start];
      if (Math.hypot(at[0] - g.last[0], at[1] - g.last[1]) < 2) return;
      g.outline.push(at);
      g.last = at;
      this.redraw();
    }
  }

  onPointerUp(event) {
    this.touches.delete(event.pointerId);
    const g = this.gesture;
    if (!g) return;
    this.gesture = null;
    this.stage.classList.remove('dragging');
    if (g.kind === 'pinch' || (g.kind === 'pan' && g.moved)) return;
    if (!g.moved) this.click(g.start);
    else if (g.outline?.length >= 3) this.lasso(g);
    else this.redraw();
  }

  onPointerCancel(event) {
    this.touches.delete(event.pointerId);
    this.gesture = null;
    this.stage.classList.remove('dragging');
    this.redraw();
  }

  onPointerLeave() {
    this.hovered = null;
    this.hideTip();
    this.redraw();
  }

  onDoubleClick(event) {
    event.preventDefault();
    this.clear();
  }

  onWheel(event) {
    const at = this.locate(event);
    const frame = this.frameAt(...at);
    if (!frame) return;
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : 1); // some browsers count in lines
    this.zoom(frame, at, Math.exp(-pixels * 0.0015));
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const pan = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] }[event.key];
    const zoom = { '+': 1.25, '=': 1.25, '-': 0.8 }[event.key];
    const act = {
      Escape: () => this.escape(), l: () => this.setTool('lasso'), b: () => this.setTool('box'),
      p: () => this.setTool('pan'), f: () => this.fitAll(), s: () => this.fitSelection(),
    }[event.key];
    if (!pan && !zoom && !act) return;
    event.preventDefault();
    event.stopPropagation(); // not also a shortcut of the page
    if (pan) this.frames.forEach((frame) => this.moveView(frame, ...pan));
    if (zoom) this.frames.forEach((f) => this.zoom(f, [f.x + f.width / 2, f.y + f.height / 2], zoom));
    act?.();
  }

  /** Esc drops the outline being drawn; without one it clears the selection. */
  escape() {
    if (!this.gesture) return this.clear();
    this.gesture = null;
    this.redraw();
  }

  moveView(frame, dx, dy) {
    frame.view.x -= dx / frame.view.scale;
    frame.view.y += dy / frame.view.scale;
    frame.touched = true;
    this.redraw();
  }

  zoom(frame, at, factor) {
    const [x, y] = this.toData(frame, ...at);
    const { view } = frame;
    view.scale *= factor;
    view.x = x - (at[0] - frame.x - frame.width / 2) / view.scale;
    view.y = y + (at[1] - frame.y - frame.height / 2) / view.scale;
    frame.touched = true;
    this.redraw();
  }

  startPinch() {
    const [a, b] = [...this.touches.values()];
    const middle = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
    const frame = this.gesture?.frame ?? this.frameAt(...middle);
    if (!frame) return;
    this.gesture = { kind: 'pinch', frame, middle, distance: Math.hypot(a[0] - b[0], a[1] - b[1]) };
  }

  pinch() {
    if (this.touches.size < 2) return;
    const g = this.gesture;
    const [a, b] = [...this.touches.values()];
    const middle = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
    const distance = Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
    this.moveView(g.frame, middle[0] - g.middle[0], middle[1] - g.middle[1]);
    this.zoom(g.frame, middle, distance / g.distance);
    Object.assign(g, { middle, distance });
  }

  // --- hovering and clicking

  nearest(at) {
    const frame = this.frameAt(...at);
    if (!frame) return null;
    const [x, y] = this.toData(frame, ...at);
    const { scale } = frame.view;
    let best = null, bestDistance = (HOVER_PIXELS / scale) ** 2;
    for (const index of frame.panels) {
      const { xy, n, codes } = this.panels[index];
      for (let i = 0; i < n; i++) {
        const dx = xy[2 * i] - x, dy = xy[2 * i + 1] - y, d = dx * dx + dy * dy;
        if (d < bestDistance && (!this.only.size || this.only.has(codes[i]))) {
          bestDistance = d;
          best = { panel: index, i };
        }
      }
    }
    return best;
  }

  hover(at) {
    const point = this.nearest(at);
    if (!point) this.hideTip();
    else this.showTip(point, at);
    if (point?.panel === this.hovered?.panel && point?.i === this.hovered?.i) return;
    this.hovered = point;
    this.redraw();
  }

  showTip(point, at) {
    const panel = this.panels[point.panel];
    this.tipGlyph.textContent = glyphOf(panel, point.i);
    this.showPicture(panel.pictures?.(point.i) ?? '');
    this.tipName.textContent = panel.names ? panel.names(point.i) : `row ${panel.ids[point.i]}`;
    this.tipMore.textContent = this.describe(panel, point.i);
    this.tip.style.display = 'block';
    const width = this.tip.offsetWidth, height = this.tip.offsetHeight;
    const left = at[0] + 14 + width > this.stage.clientWidth ? at[0] - 14 - width : at[0] + 14;
    const top = at[1] + 14 + height > this.stage.clientHeight ? at[1] - 14 - height : at[1] + 14;
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${top}px`;
  }

  /** Only a picture that came with the data: an address would be fetched. */
  showPicture(source) {
    if (!source.startsWith('data:image/')) {
      this.tipPicture.remove();
      return;
    }
    if (this.tipPicture.src !== source) this.tipPicture.src = source;
    this.tipName.before(this.tipPicture);
  }

  describe(panel, i) {
    const { legend } = this.header;
    const parts = [];
    if (panel.values) {
      const value = panel.values[i];
      const text = Number.isNaN(value) ? '(none)' : number(legend.low + value * (legend.high - legend.low));
      parts.push(`${legend.title || 'value'}: ${text}`);
    } else if (legend.kind === 'value') {
      parts.push(`${legend.title || 'value'}: (none)`);
    } else if (legend.names.length > 2 || panel.codes[i] === legend.names.length - 1) {
      parts.push(`${legend.title || 'label'}: ${legend.names[panel.codes[i]]}`);
    }
    if (panel.names) parts.push(`row ${panel.ids[i]}`);
    if (this.header.joint && this.panels.length > 1) parts.push(panel.title);
    return parts.join(' · ');
  }

  hideTip() {
    this.tip.style.display = 'none';
  }

  stillThere(point) {
    return point && point.panel < this.panels.length && point.i < this.panels[point.panel].n ? point : null;
  }

  click(at) {
    // The second press of a double click is not another click.
    const now = performance.now();
    const again = now - (this.clickedAt ?? -Infinity) < DOUBLE_CLICK_MS;
    this.clickedAt = now;
    const point = this.nearest(at);
    if (!point || again) return this.redraw();
    this.clicked = point;
    this.redraw();
    this.emit({ kind: 'click', panel: point.panel, id: this.panels[point.panel].ids[point.i] });
  }

  // --- selecting

  lasso(gesture) {
    const started = performance.now();
    const polygon = toPolygon(gesture.outline.map(([px, py]) => this.toData(gesture.frame, px, py)));
    const panel = gesture.frame.panels[0];
    const hit = this.inside(gesture.frame, polygon);
    this.panels.forEach((p, i) => combine(p.selected, hit[i], gesture.mode));
    this.afterSelecting();
    this.counters.lastSelectMs = performance.now() - started;
    this.emit({ kind: 'lasso', panel, polygon, mode: gesture.mode, only: [...this.only] });
  }

  /** As _Scene.inside in Python: the points inside (of the isolated classes) and their partners. */
  inside(frame, polygon) {
    const hit = this.panels.map((p) => new Uint8Array(p.n));
    for (const index of frame.panels) this.markInside(this.panels[index], polygon, hit[index]);
    const { partner, index } = this.panels[frame.panels[0]];
    if (!this.header.joint && partner) {
      for (let i = 0; i < partner.length; i++) if (hit[index][i] && partner[i] >= 0) hit[1 - index][partner[i]] = 1;
    }
    return hit;
  }

  markInside(panel, polygon, hit) {
    const { xy, n, codes } = panel;
    const box = boundsOf(Float32Array.from(polygon.flat()));
    for (let i = 0; i < n; i++) {
      const x = xy[2 * i], y = xy[2 * i + 1];
      if (x < box.x0 || x > box.x1 || y < box.y0 || y > box.y1) continue;
      if (this.only.size && !this.only.has(codes[i])) continue;
      if (insidePolygon(x, y, polygon)) hit[i] = 1;
    }
  }

  clear() {
    this.clicked = null;
    this.panels.forEach((p) => p.selected.fill(0));
    this.afterSelecting();
    this.emit({ kind: 'clear', panel: 0 });
  }

  afterSelecting() {
    this.panels.forEach((panel) => this.uploadState(panel));
    this.showCounts();
    this.redraw();
  }

  /** Tell Python, together with what it has not acknowledged: a quick second brush must not swallow the first. */
  emit(event) {
    this.rev = Math.max(this.rev + 1, Date.now()); // grows across reloads of the page
    this.pending = [...this.pending, { ...event, scene: this.header.scene, rev: this.rev }].slice(-MAX_PENDING);
    this.emittedAt = performance.now();
    this.setState('events', this.pending);
  }

  destroy() {
    this.stopListening.abort();
    this.resizeObserver.disconnect();
    if (this.frameRequest) cancelAnimationFrame(this.frameRequest);
    this.painter?.release();
    this.painter = null;
  }
}

function frameBoxes(n, width, height) {
  if (n === 1) return [{ x: 0, y: 0, width, height }];
  if (width >= height) {
    const each = (width - FRAME_GAP) / 2;
    return [0, 1].map((i) => ({ x: i * (each + FRAME_GAP), y: 0, width: each, height }));
  }
  const each = (height - FRAME_GAP) / 2; // a narrow screen: one above the other
  return [0, 1].map((i) => ({ x: 0, y: i * (each + FRAME_GAP), width, height: each }));
}

/** Points grow a little as one comes nearer, at most to double size. */
function growthOf(frame) {
  return Math.min(2, Math.max(1, Math.pow(frame.view.scale / frame.fullScale, 0.3)));
}

function within(frame, [x, y]) {
  return x >= frame.x && x < frame.x + frame.width && y >= frame.y && y < frame.y + frame.height;
}

/** True for the first glyph of a neighbourhood; later ones would lie on top of it. */
function claim(taken, x, y) {
  const column = Math.floor(x / GLYPH_PIXELS), row = Math.floor(y / GLYPH_PIXELS);
  for (let dx = -1; dx <= 1; dx++) {
    for (let dy = -1; dy <= 1; dy++) {
      const other = taken.get(`${column + dx},${row + dy}`);
      if (other && Math.hypot(other[0] - x, other[1] - y) < GLYPH_PIXELS) return false;
    }
  }
  taken.set(`${column},${row}`, [x, y]);
  return true;
}

const graphemes = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** The point's character; media that are longer texts or paths have none. */
function glyphOf(panel, i) {
  const text = panel.media?.(i) ?? '';
  return text.length <= 16 && [...graphemes.segment(text)].length === 1 ? text : '';
}

function positionsAt(panel, mix) {
  if (mix >= 1 || !panel.from) return panel.xy;
  return panel.xy.map((v, k) => panel.from[k] + (v - panel.from[k]) * mix);
}

function combine(selected, hit, mode) {
  for (let i = 0; i < selected.length; i++) {
    if (mode === 'add') selected[i] |= hit[i];
    else if (mode === 'subtract') selected[i] &= 1 - hit[i];
    else selected[i] = hit[i];
  }
}

function badgeText(numbers) {
  const last = numbers[numbers.length - 1];
  const inRow = last - numbers[0] === numbers.length - 1;
  if (numbers.length === 1) return `${numbers[0]}`;
  return inRow ? `${numbers[0]}–${last}` : numbers.length > 3 ? `${numbers[0]}, …` : numbers.join(', ');
}

// --------------------------------------------------------------------------------------------------------- mounting

const maps = new WeakMap(); // by parent element: Streamlit calls the function below again on each change of the data

/** For tests: counters, and where a point is on the screen. */
function expose(map) {
  window.__relcoreMap = Object.assign(map.counters, {
    pixelsOf: (panel, i) => {
      const box = map.inkCanvas.getBoundingClientRect();
      const [x, y] = map.pixelsOf(map.panels[panel], i);
      return [box.left + x, box.top + y];
    },
    state: () => ({
      frames: map.frames.map(({ x, y, width, height, view }) => ({ x, y, width, height, view: { ...view } })),
      pending: map.pending.length, mix: map.mix, rev: map.rev, only: [...map.only],
    }),
    loseContext: () => map.painter?.gl.getExtension('WEBGL_lose_context'),
  });
}

export default function ({ data, parentElement, setStateValue }) {
  const block = readBlock(data instanceof Uint8Array ? data : new Uint8Array(data));
  if (block.header.publish) {
    publish(block);
    return () => stores.delete(block.header.store);
  }
  let map = maps.get(parentElement);
  if (!map) {
    map = new LinkedMap(parentElement.querySelector('.map'));
    maps.set(parentElement, map);
    liveMaps.add(map);
    expose(map);
  }
  map.receive(block, setStateValue);
  return () => {
    maps.delete(parentElement);
    liveMaps.delete(map);
    map.destroy();
  };
}
