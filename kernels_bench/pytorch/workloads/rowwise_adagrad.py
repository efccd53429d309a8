"""Row-wise Adagrad as recommendation models use it: one accumulator per row of a table."""

import torch


class RowwiseAdagrad(torch.optim.Optimizer):
    """Sparse gradients: state += mean of squares over the row, w -= lr g / (sqrt(state) + eps).
    Dense ones get plain Adagrad."""

    def __init__(self, params, lr=0.01, eps=1e-10):
        super().__init__(params, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                update = self._sparse if parameter.grad.is_sparse else self._dense
                update(parameter, group["lr"], group["eps"])

    def _sparse(self, parameter, lr, eps):
        state = self.state[parameter]
        if not state:
            state["sum"] = torch.zeros(parameter.size(0), device=parameter.device)
        grad = parameter.grad.coalesce()
        rows, values = grad._indices()[0], grad._values()
        state["sum"].index_add_(0, rows, values.pow(2).mean(dim=1))
        scale = state["sum"].index_select(0, rows).sqrt_().add_(eps)
        parameter.index_add_(0, rows, values / scale.unsqueeze(1), alpha=-lr)

    def _dense(self, parameter, lr, eps):
        state = self.state[parameter]
        if not state:
            state["sum"] = torch.zeros_like(parameter)
        state["sum"].addcmul_(parameter.grad, parameter.grad)
        parameter.addcdiv_(parameter.grad, state["sum"].sqrt().add_(eps), value=-lr)
