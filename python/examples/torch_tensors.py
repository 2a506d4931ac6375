"""Saves PyTorch weights in a compressed file, and reads files straight into tensors. Usage: torch_tensors.py [SIDE]

With a CUDA GPU, compressed bytes cross the bus and the GPU decodes them into the tensors.
"""

import sys
import tempfile
from pathlib import Path

import torch

import libpz as pz


def main(side: int = 2048) -> None:
    """Save a model and read it back, whole and in part; then fill tensors from a file."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(side, side), torch.nn.ReLU(), torch.nn.Linear(side, 10))
    model = model.to(torch.bfloat16)
    with tempfile.TemporaryDirectory() as folder:
        # A dictionary of tensors. Each type gets the filter that suits it.
        path = Path(folder, "model.pz")
        pz.save_file(model.state_dict(), path, {"epoch": "7"})
        again = torch.nn.Sequential(torch.nn.Linear(side, side), torch.nn.ReLU(), torch.nn.Linear(side, 10))
        again.to(torch.bfloat16).load_state_dict(pz.load_file(path, "torch"))
        with pz.open_file(path, "torch") as file:
            rows = file.get_slice("0.weight")[10:20]
        assert torch.equal(rows, model[0].weight[10:20])
        size = sum(tensor.nbytes for tensor in model.state_dict().values())
        print(f"model: {size:,} bytes became {path.stat().st_size:,}")

        # One array. Its bytes have no header, so the reader must know type and shape.
        ids = torch.randint(0, 50_000, (side, side)).sort().values
        path = Path(folder, "ids.pz")
        path.write_bytes(pz.compress(ids, filter="i64"))
        tensor = torch.from_dlpack(pz.load(path, device)).view(torch.int64).view(side, side)
        assert torch.equal(tensor.cpu(), ids)

        # A part of it, into an existing tensor.
        batch = torch.empty((16, side), dtype=torch.int64, device=device)
        start = 100 * side * 8
        pz.load(path, range=(start, start + batch.nbytes), out=batch)
        assert torch.equal(batch.cpu(), ids[100:116])
        print(f"ids: {ids.nbytes:,} bytes became {path.stat().st_size:,}, and went to {tensor.device}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
