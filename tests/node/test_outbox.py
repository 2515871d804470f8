"""The node's folder."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from cloudbench.node.outbox import Outbox


def test_reader_always_sees_a_whole_file(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.write_json("status.json", {"round": 0, "text": ""})
    done = threading.Event()

    def write() -> None:
        for number in range(300):
            outbox.write_json("status.json", {"round": number, "text": "x" * 50_000})
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    rounds = []
    while not done.is_set():
        rounds.append(json.loads((tmp_path / "status.json").read_text())["round"])
    writer.join()
    assert rounds == sorted(rounds)
    assert json.loads((tmp_path / "status.json").read_text())["round"] == 299
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_folder_that_vanished_stops_nothing_and_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    outbox = Outbox(folder)
    folder.rmdir()
    outbox.log("unheard")
    outbox.write_json("status.json", {"state": "running"})
    folder.mkdir()
    outbox.write_json("status.json", {"state": "running"})
    assert json.loads((folder / "status.json").read_text()) == {"state": "running"}
