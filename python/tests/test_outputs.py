"""Files that `save_file` and similar functions write are complete or absent, and replace no other file."""

import gc
import io
import os
import stat
import threading

import pytest

import libpz as pz

numpy = pytest.importorskip("numpy")

TENSORS = {"w": numpy.random.default_rng(0).normal(size=200_000).astype("f4")}


def is_saved(file):
    return numpy.array_equal(pz.load_file(file)["w"], TENSORS["w"])


def test_threads_that_save_to_one_path(tmp_path):
    path = tmp_path / "race.pz"
    together, failures = threading.Barrier(4), []

    def save():
        together.wait()
        try:
            for _ in range(5):
                pz.save_file(TENSORS, path)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=save) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and is_saved(path) and os.listdir(tmp_path) == ["race.pz"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_process_leaves_the_file_alone(tmp_path):
    unfinished = pz._libpz.NewFile(tmp_path / "a.pz")
    child = os.fork()
    if child == 0:
        unfinished.discard()
        del unfinished
        gc.collect()
        # The child's temporary name must differ from the parent's.
        pz.save_file(TENSORS, tmp_path / "b.pz")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    unfinished.finish()
    assert sorted(os.listdir(tmp_path)) == ["a.pz", "b.pz"] and is_saved(tmp_path / "b.pz")


@pytest.mark.skipif(os.name != "posix", reason="there are no such modes")
def test_modes(tmp_path):
    path, usual = tmp_path / "a.pz", tmp_path / "usual"
    usual.touch()
    pz.save_file(TENSORS, path)
    assert path.stat().st_mode == usual.stat().st_mode
    for mode in (0o600, 0o444, 0o660):
        path.chmod(mode)
        pz.save_file(TENSORS, path)
        assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.name != "posix", reason="there are no such links and pipes")
def test_links_devices_and_pipes_stay(tmp_path):
    (tmp_path / "d").mkdir()
    for name, end in (("link", "d/a.pz"), ("dangling", "d/b.pz"), ("link", "d/a.pz")):
        link = tmp_path / name
        link.is_symlink() or link.symlink_to(end)
        pz.save_file(TENSORS, link)
        assert link.is_symlink() and is_saved(tmp_path / end)
    pz.save_file(TENSORS, os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    pz.save_file(TENSORS, pipe)
    reader.join()
    assert is_saved(io.BytesIO(read[0])) and pipe.is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["d", "dangling", "link", "pipe"]


def test_failures_leave_what_was_there(tmp_path):
    path = tmp_path / "a.pz"
    path.write_bytes(b"what was there")
    with pytest.raises(pz.OptionError):
        pz.save_file(TENSORS, path, level=12)
    with pytest.raises(IsADirectoryError):
        pz.save_file(TENSORS, tmp_path)
    with pytest.raises(FileNotFoundError, match="absent"):
        pz.save_file(TENSORS, tmp_path / "absent" / "a.pz")
    assert path.read_bytes() == b"what was there" and os.listdir(tmp_path) == ["a.pz"]


def test_a_source_is_not_its_own_target(tmp_path):
    path, link = tmp_path / "a.pz", tmp_path / "b.pz"
    pz.save_file(TENSORS, path)
    pz.to_safetensors(path, tmp_path / "a.safetensors")
    os.link(path, link)
    os.link(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    for work, source, target in (
        (pz.recover, path, path),
        (pz.recover, path, link),
        (pz.to_safetensors, path, link),
        (pz.from_safetensors, tmp_path / "a.safetensors", tmp_path / "b.safetensors"),
    ):
        before = source.read_bytes()
        with pytest.raises(pz.OptionError, match="same file"):
            work(source, target)
        assert source.read_bytes() == before


def test_recover_replaces_a_file_when_it_is_done(tmp_path):
    target = tmp_path / "saved"
    target.write_bytes(b"what was there")
    with pytest.raises(pz.NotPzError):
        pz.recover(io.BytesIO(b"nothing of it" * 100), target)
    assert target.read_bytes() == b"what was there"
    pz.recover(io.BytesIO(pz.compress(b"contents")), target)
    assert target.read_bytes() == b"contents" and os.listdir(tmp_path) == ["saved"]
