"""The sample pairs: small, quick to open, what their README says, and made by their script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from relcore import samples
from relcore.errors import InputError
from relcore.methods import REGISTRY
from relcore.projection import centred_unit
from relcore.samples import list_samples, open_sample

DATA = samples.ROOT.parent.parent / "shared" / "data"
NAMES = ["banking77", "fashion", "glove", "emoji", "molecules"]


def test_the_default_comes_first():
    assert [s.name for s in list_samples()] == NAMES


def test_all_of_it_is_small():
    total = sum(f.stat().st_size for f in samples.ROOT.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    assert total < 12e6


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_what_its_card_says(name):
    card = next(s for s in list_samples() if s.name == name)
    pair, report_x, report_y, maps, further = open_sample(name)
    assert card.method in REGISTRY and card.licence and card.description.endswith(".")
    for space, report, shape, at, title in (
        (pair.x, report_x, card.x_shape, maps[0], card.x_title),
        (pair.y, report_y, card.y_shape, maps[1], card.y_title),
        *((o.space, o.report, f.shape, o.map, f.title) for f, o in zip(card.further, further, strict=True)),
    ):
        assert space.vectors.shape == shape and space.title == title
        assert not report.set_aside and not report.warnings
        assert at.shape == (len(space), 2) and at.dtype == np.float32
        assert "" not in set(space.names)
        assert card.missing == "" or card.missing in set(pair.x.labels)
    assert len(pair.truth) == (card.paired or min(len(pair.x), len(pair.y))) >= card.seeds
    if pair.x.labels is not None:
        assert (pair.x.labels[pair.truth.x] == pair.y.labels[pair.truth.y]).all()


@pytest.mark.parametrize("name", NAMES)
def test_maps_are_the_principal_components(name):
    """Against scikit-learn, and with the sign that makes the largest loading positive."""
    PCA = pytest.importorskip("sklearn.decomposition").PCA
    pair, _, _, maps, further = open_sample(name)
    for space, at in ((pair.x, maps[0]), (pair.y, maps[1]), *((o.space, o.map) for o in further)):
        rows = centred_unit(space.vectors).astype(np.float64)
        pca = PCA(2, svd_solver="full").fit(rows)
        largest = pca.components_[[0, 1], np.abs(pca.components_).argmax(1)]
        np.testing.assert_allclose(at, pca.transform(rows) * np.sign(largest), atol=1e-3)


def test_fashion_lacks_one_class_on_one_side():
    pair, *_ = open_sample("fashion")
    assert set(pair.x.labels) - set(pair.y.labels) == {"T-shirt/top"}
    unpaired = np.setdiff1d(np.arange(len(pair.x)), pair.truth.x)
    assert set(pair.x.labels[unpaired]) == {"T-shirt/top"}
    assert list(pair.x.names[pair.truth.x]) == list(pair.y.names[pair.truth.y])


def test_emoji_are_shown_as_themselves():
    pair, *_ = open_sample("emoji")
    at = pair.x.positions_of_name["red heart"][0]
    assert pair.x.media[at] == "❤️" and len(set(pair.x.media)) == len(pair.x)


def test_emoji_have_a_third_space_of_the_same_rows():
    """Against the file it is made from, and by what a row of both sides shows."""
    pair, *_, further = open_sample("emoji")
    (french,) = further
    np.testing.assert_array_equal(french.truth.array, np.repeat(np.arange(1911)[:, None], 2, 1))
    assert (french.space.media == pair.x.media).all() and (french.space.labels == pair.x.labels).all()
    at = {n: french.space.names[pair.x.positions_of_name[n][0]] for n in ("red heart", "shark", "flag: Kuwait")}
    assert at == {"red heart": "cœur rouge", "shark": "requin", "flag: Kuwait": "drapeau\u202f: Koweït"}
    assert len(set(french.space.names)) == 1911
    if not DATA.is_dir():
        pytest.skip(f"the data the samples are made from are not at {DATA}")
    with np.load(DATA / "text_emoji_en_minilm_fr_e5" / "pair.npz") as z:
        np.testing.assert_array_equal(z["x"].astype(np.float32), pair.y.vectors)  # its English side is ours
        np.testing.assert_array_equal(z["y"].astype(np.float32), french.space.vectors)
        assert all(text.startswith(f"{name} : ") for name, text in zip(french.space.names, z["fr"], strict=True))


def test_classes_of_the_default_sample_are_balanced():
    pair, *_ = open_sample("banking77")
    _, counts = np.unique(pair.x.labels, return_counts=True)
    assert len(counts) == 77 and set(counts) == {26}


def test_molecules_have_pools_without_a_hidden_pair():
    """Against the file they are made from: a molecule on both sides is in a known pair, no other is."""
    pair, *_ = open_sample("molecules")
    assert len(pair.truth) == 600 and (pair.truth.x == pair.truth.y).all()
    listed = np.loadtxt(samples.ROOT / "molecules" / "pairs.csv", delimiter=",", dtype=int)
    np.testing.assert_array_equal(listed, pair.truth.array)
    if not DATA.is_dir():
        pytest.skip(f"the data the samples are made from are not at {DATA}")
    with np.load(DATA / "mol_text_morgan256_minilm384" / "pair.npz") as z:
        row_of = {text: i for i, text in enumerate(z["text"])}
        there = {smiles: i for i, smiles in enumerate(z["smiles"])}
    rows_x, rows_y = [there[n] for n in pair.x.names], [row_of[n] for n in pair.y.names]
    assert rows_x[:600] == rows_y[:600] and not set(rows_x[600:]) & set(rows_y)
    assert not set(rows_y[600:]) & set(rows_x)


def test_an_unknown_sample_is_named():
    with pytest.raises(InputError, match="no sample 'nope'.*banking77, fashion"):
        open_sample("nope")


def test_opening_a_sample_is_quick_and_light():
    code = (
        "import sys, time, json\nfrom relcore.samples import list_samples, open_sample\nspent = {}\n"
        "for s in list_samples():\n    t = time.process_time(); open_sample(s.name)\n"
        "    spent[s.name] = time.process_time() - t\n"
        "print(json.dumps([spent, [m for m in ('torch', 'pandas', 'sklearn', 'streamlit') if m in sys.modules]]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    spent, heavy = json.loads(out.stdout)
    assert heavy == []
    assert max(spent.values()) < 0.5, spent


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the data the samples are made from are not at {DATA}")
def test_the_script_makes_the_samples_again(tmp_path):
    script = Path(samples.ROOT) / "build.py"
    subprocess.run([sys.executable, script, "--data", DATA, "--out", tmp_path], check=True, capture_output=True)
    for name in NAMES:
        card = (samples.ROOT / name / "sample.json").read_bytes()
        assert (tmp_path / name / "sample.json").read_bytes() == card
        files = sorted(f.name for f in (samples.ROOT / name).glob("*.npz"))
        assert sorted(f.name for f in (tmp_path / name).glob("*.npz")) == files
        for file in files:
            with np.load(tmp_path / name / file) as new, np.load(samples.ROOT / name / file) as old:
                assert new.files == old.files
                for key in old.files:
                    if key == "map":  # another linear algebra library may round a last digit the other way
                        np.testing.assert_allclose(new[key], old[key], atol=2e-4)
                    else:
                        np.testing.assert_array_equal(new[key], old[key])
