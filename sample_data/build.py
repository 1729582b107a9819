"""How the samples were made: ``python sample_data/build.py --data ../shared/data`` writes the same files again.

Vectors are stored as float16 in compressed .npz files. ``map`` holds the two leading principal components of the
centred rows of norm 1, rounded to four decimals. Nothing but the split of the molecules is random, by a fixed seed.
Where only the first rows are paired, ``pairs.csv`` lists them for the command line.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from relcore.projection import centred_unit, fit_pca  # noqa: E402

FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def banking77(data: Path) -> tuple[dict, dict, dict]:
    """The first 26 questions of each intent in the official test split: 2,002 of 3,998 rows."""
    z = np.load(data / "sent_banking77_l6_L3" / "pair.npz")
    test = np.flatnonzero(z["split"] == 1)
    labels = z["labels"]
    rows = np.sort(np.concatenate([test[labels[test] == label][:26] for label in np.unique(labels)]))
    about = {
        "order": 0,
        "title": "Bank questions, two sentence encoders",
        "description": "2,002 questions to a bank in 77 intents; the same sentences seen by two encoders.",
        "x_title": "MiniLM-L6, 384-d",
        "y_title": "MiniLM-L3 (paraphrase), 384-d",
        "pairing": "row",
        "seeds": 15,
        "method": "ao",
        "licence": "BANKING77 by PolyAI, CC BY 4.0; encoders Apache-2.0",
    }
    columns = {"names": z["texts"][rows], "labels": labels[rows]}
    return {"vectors": z["x"][rows], **columns}, {"vectors": z["y"][rows], **columns}, about


def emoji(data: Path) -> tuple[dict, dict, dict, dict]:
    """All 1,911 emoji; of the picture features, which are ordered principal coordinates, the first 256 of 512.

    The third space are the French names and keywords, from another file with the same emoji in the same rows.
    """
    z = np.load(data / "emoji_image_text" / "pair.npz")
    other = np.load(data / "text_emoji_en_minilm_fr_e5" / "pair.npz")
    for here, there in (("unified", "unified"), ("labels", "labels"), ("y", "x")):
        if not np.array_equal(z[here], other[there]):
            raise SystemExit(f"the two emoji files differ in {here}: their rows are not the same, so nothing was made")
    characters = np.array(["".join(chr(int(code, 16)) for code in u.split("-")) for u in z["unified"]])
    about = {
        "order": 3,
        "title": "Emoji, pictures and names",
        "description": "1,911 emoji as pictures and as English names with keywords; hard, 300 seeds carry a little. "
        "French names are a third space.",
        "x_title": "Pictures, EfficientNet-Lite0, 256-d",
        "y_title": "English names, MiniLM-L6, 384-d",
        "further": [{"file": "z.npz", "title": "French names, E5-small, 384-d", "pairing": "row"}],
        "pairing": "name",
        "seeds": 300,
        "method": "procrustes",
        "licence": "Noto Emoji Apache-2.0; emojibase MIT; Unicode CLDR data; encoders Apache-2.0 and MIT",
    }
    columns = {"names": z["names"], "labels": z["labels"], "media": characters}
    french = columns | {"names": np.array([_french_name(text) for text in other["fr"]])}
    x, y = {"vectors": z["x"][:, :256], **columns}, {"vectors": z["y"], **columns}
    return x, y, about, {"vectors": other["y"], **french}


def _french_name(text: str) -> str:
    """What stands before the keywords in ``name : keywords``; four families have the sign in their name as well."""
    parts = text.split(" : ")
    return " : ".join(parts[: 2 if len(parts) > 2 else 1])


def fashion(data: Path) -> tuple[dict, dict, dict]:
    """All 5,000 test pictures in x; y without the class its network never saw."""
    z = np.load(data / "fashion_missing_class0" / "pair.npz")
    labels = np.array(FASHION)[z["labels"]]
    names = np.array([f"test picture {i}" for i in range(len(labels))])
    kept = z["labels"] != 0
    about = {
        "order": 1,
        "title": "Fashion-MNIST, a class missing on one side",
        "description": f"5,000 pictures through one network, {kept.sum():,} through one that never saw a T-shirt.",
        "x_title": "All ten classes, 64-d",
        "y_title": "Without T-shirt/top, 64-d",
        "pairing": "name",
        "seeds": 100,
        "method": "procrustes",
        "licence": "Fashion-MNIST by Zalando SE, MIT",
        "missing": FASHION[0],
    }
    x = {"vectors": z["x"], "names": names, "labels": labels}
    return x, {"vectors": z["y"][kept], "names": names[kept], "labels": labels[kept]}, about


def glove(data: Path) -> tuple[dict, dict, dict]:
    """The 8,000 most frequent of 20,000 words."""
    z = np.load(data / "word_en_glove50_glove100" / "pair.npz")
    about = {
        "order": 2,
        "title": "GloVe words, 50 and 100 dimensions",
        "description": "The 8,000 most frequent English words in two GloVe tables; the easy control.",
        "x_title": "GloVe 50-d",
        "y_title": "GloVe 100-d",
        "pairing": "name",
        "seeds": 15,
        "method": "ao",
        "licence": "GloVe (Stanford), PDDL 1.0; 100-d table packaged under MIT",
    }
    names = {"names": z["words"][:8000]}
    return {"vectors": z["x"][:8000], **names}, {"vectors": z["y"][:8000], **names}, about


def molecules(data: Path) -> tuple[dict, dict, dict]:
    """600 molecules on both sides, 450 more on each that the other side lacks, split at random (seed 0).

    x is named by structure (SMILES), y by description. Row i of both is one molecule for the first 600 rows.
    """
    z = np.load(data / "mol_text_morgan256_minilm384" / "pair.npz")
    order = np.random.default_rng(0).permutation(len(z["x"]))
    paired, size = 600, 450
    rows_x = order[: paired + size]
    rows_y = np.concatenate([order[:paired], order[paired + size : paired + 2 * size]])
    about = {
        "order": 4,
        "title": "Molecules and their descriptions",
        "description": "Molecules as fingerprints and as sentences from ChEBI: 600 on both sides, 200 of them known, "
        "and 450 more on each side that have no partner.",
        "x_title": "Structures, Morgan counts, 256-d",
        "y_title": "Descriptions, MiniLM-L6, 384-d",
        "pairing": "row",
        "paired": paired,
        "seeds": 200,
        "method": "anchordot",
        "licence": "ChEBI, CC BY 4.0; ChEBI-20 split BSD-3; encoder Apache-2.0",
    }
    x = {"vectors": z["x"][rows_x], "names": z["smiles"][rows_x], "labels": z["labels"][rows_x]}
    return x, {"vectors": z["y"][rows_y], "names": z["text"][rows_y], "labels": z["labels"][rows_y]}, about


SAMPLES = {f.__name__: f for f in (banking77, emoji, fashion, glove, molecules)}


def build(data: Path, out: Path, only: str | None = None) -> None:
    """Write every sample, or only one, as ``out/NAME/{x.npz, y.npz, sample.json}``, with a third space as ``z.npz``."""
    for name, make in SAMPLES.items():
        if only not in (None, name):
            continue
        x, y, about, *further = make(data)
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        about |= {"x_shape": _write(folder / "x.npz", x), "y_shape": _write(folder / "y.npz", y)}
        for entry, space in zip(about.get("further", ()), further, strict=True):
            entry["shape"] = _write(folder / entry["file"], space)
        if about.get("paired"):
            lines = "".join(f"{i},{i}\n" for i in range(about["paired"]))
            (folder / "pairs.csv").write_text(lines, encoding="utf-8")
        text = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
        (folder / "sample.json").write_text(text, encoding="utf-8")
        size = sum(f.stat().st_size for f in folder.iterdir())
        shapes = [about["x_shape"], about["y_shape"], *(entry["shape"] for entry in about.get("further", ()))]
        print(f"{name}: {' and '.join(map(str, shapes))}, {size / 1e6:.2f} MB")


def _write(file: Path, space: dict) -> list[int]:
    """Write a space with its map; returns its shape."""
    space["vectors"] = space["vectors"].astype(np.float16)
    rows = centred_unit(space["vectors"].astype(np.float32))
    space["map"] = fit_pca(rows)(rows).round(4)
    np.savez_compressed(file, **space)
    return list(space["vectors"].shape)


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    ap.add_argument("--out", type=Path, default=HERE)
    ap.add_argument("--only", choices=SAMPLES)
    args = ap.parse_args()
    build(args.data, args.out, args.only)
