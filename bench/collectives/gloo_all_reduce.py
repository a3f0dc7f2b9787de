"""All-reduce of f32 sums by PyTorch's Gloo backend, back to back, with each operation's time on the rank that took
longest: what `lacuna collective bench` prints.

    RANK=... WORLD_SIZE=... MASTER_ADDR=... MASTER_PORT=... gloo_all_reduce.py BYTES:WARMUP:COUNT ...

Rank 0 prints a line for each size: its bytes, and the time of each operation, warm-up included, in microseconds.
"""

import os
import sys
import time

import torch
import torch.distributed as dist


def measure(size_bytes: int, warmup: int, count: int) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    elements = size_bytes // 4
    period = torch.arange(6)
    parts = [(1 + (other + period) % 3).to(torch.float32) for other in range(ranks)]
    tensor = parts[rank].repeat(elements // 6 + 1)[:elements].contiguous()
    expected = sum(parts).repeat(elements // 6 + 1)[:elements]
    dist.barrier()
    times_us = []
    for operation in range(warmup + count):
        begin_s = time.perf_counter()
        dist.all_reduce(tensor)
        times_us.append((time.perf_counter() - begin_s) * 1e6)
        if operation == 0:
            if not torch.equal(tensor, expected):
                sys.exit(f"rank {rank}: a wrong sum")
            # Gloo reduces in place, and what it sums up again and again would become infinite.
            tensor.zero_()
    slowest_us = torch.tensor(times_us, dtype=torch.float64)
    dist.all_reduce(slowest_us, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(size_bytes, *(f"{us:.3f}" for us in slowest_us.tolist()), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for argument in sys.argv[1:]:
        measure(*map(int, argument.split(":")))
    dist.barrier()
    dist.destroy_process_group()
    # Threads of the backend may outlive the interpreter's end.
    sys.stdout.flush()
    os._exit(0)


main()
