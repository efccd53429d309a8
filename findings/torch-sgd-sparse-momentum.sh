#!/bin/bash
# PyTorch 1.13.1, SGD(momentum=0.9) on Embedding(sparse=True): the state of a table grows with every step.
# Guess: the momentum is as large as the table, or as the rows of one batch.
# Seen: it is a sparse tensor to which each step adds the rows of its batch, also rows that it has already. After 30 steps of 32 lookups it has 960
# rows for a table of 1,000, and for a table of 100 more than the table. Only a batch of the very same lookups adds none.
# Adagrad's state is as large as the table from the first step on.
# For users: a recorded step is as large and as slow as its place in the run makes it; record a late one. Adagrad, or no momentum, does not grow.
source "$(dirname "$0")/common.sh"
torch_recorder
/usr/bin/python3 - >seen.txt <<'PYTHON'
import torch

def momentum_rows(table_rows, lookups):
    table = torch.nn.Embedding(table_rows, 16, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1, momentum=0.9)
    rows = {}
    for step in range(1, 31):
        optimizer.zero_grad(set_to_none=True)
        table(lookups(step)).sum().backward()
        optimizer.step()
        rows[step] = optimizer.state[table.weight]["momentum_buffer"]._nnz()
    return ", ".join(f"{rows[step]} rows after step {step}" for step in (1, 2, 10, 30))

print("new rows, table of 1000:", momentum_rows(1000, lambda step: torch.arange(32) + 32 * step))
torch.manual_seed(1)
print("rows by chance, table of 100:", momentum_rows(100, lambda step: torch.randint(0, 100, (32,))))
print("the same rows, table of 100:", momentum_rows(100, lambda step: torch.arange(32)))
table = torch.nn.Embedding(1000, 16, sparse=True)
adagrad = torch.optim.Adagrad(table.parameters())
table(torch.arange(32)).sum().backward()
adagrad.step()
print("Adagrad:", list(adagrad.state[table.weight]["sum"].shape), adagrad.state[table.weight]["sum"].layout)
PYTHON
expect <<'SEEN'
new rows, table of 1000: 32 rows after step 1, 64 rows after step 2, 320 rows after step 10, 960 rows after step 30
rows by chance, table of 100: 32 rows after step 1, 64 rows after step 2, 309 rows after step 10, 881 rows after step 30
the same rows, table of 100: 32 rows after step 1, 32 rows after step 2, 32 rows after step 10, 32 rows after step 30
Adagrad: [1000, 16] torch.strided
SEEN
