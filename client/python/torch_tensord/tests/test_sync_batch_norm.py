"""The ops of SyncBatchNorm: two parts of a batch give what the batch gives in one BatchNorm."""

import pytest
import torch

DEVICE = "tensord"
EPS, MOMENTUM = 1e-5, 0.1


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 5), (6, 3, 4, 5)])
@pytest.mark.parametrize("affine", [True, False])
def test_parts_give_what_the_batch_gives(shape, affine):
    torch.manual_seed(0)
    batch = torch.randn(shape).requires_grad_()
    layer = torch.nn.BatchNorm1d(3, eps=EPS, momentum=MOMENTUM, affine=affine)
    if len(shape) == 4:
        layer = torch.nn.BatchNorm2d(3, eps=EPS, momentum=MOMENTUM, affine=affine)
    if affine:
        torch.nn.init.normal_(layer.weight)
    expected = layer(batch)
    gradient = torch.randn(shape)
    expected.backward(gradient)

    here = torch.nn.BatchNorm1d(3, affine=affine).to(DEVICE)
    weight, bias = (layer.weight.detach().to(DEVICE), layer.bias.detach().to(DEVICE)) if affine else (None, None)
    sizes = [2, 4]
    parts, slopes = batch.detach().to(DEVICE).split(sizes), gradient.to(DEVICE).split(sizes)
    stats = [torch.batch_norm_stats(x, EPS) for x in parts]
    counts = torch.tensor([float(x.numel() // 3) for x in parts], device=DEVICE)
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        parts[0], torch.stack([m for m, _ in stats]), torch.stack([i for _, i in stats]),
        here.running_mean, here.running_var, MOMENTUM, EPS, counts,
    )  # fmt: skip
    got = torch.cat([torch.batch_norm_elemt(x, weight, bias, mean, invstd, EPS) for x in parts])
    torch.testing.assert_close(got.cpu(), expected.detach())
    torch.testing.assert_close(here.running_mean.cpu(), layer.running_mean)
    torch.testing.assert_close(here.running_var.cpu(), layer.running_var)

    reduced = [
        torch.batch_norm_backward_reduce(g, x, mean, invstd, weight, True, affine, affine)
        for g, x in zip(slopes, parts)
    ]
    sum_dy, sum_dy_xmu = (sum(r[i] for r in reduced) for i in (0, 1))
    gradients = torch.cat([
        torch.batch_norm_backward_elemt(g, x, mean, invstd, weight, sum_dy, sum_dy_xmu, counts.int())
        for g, x in zip(slopes, parts)
    ])  # fmt: skip
    torch.testing.assert_close(gradients.cpu(), batch.grad)
    if affine:
        torch.testing.assert_close(sum(r[2] for r in reduced).cpu(), layer.weight.grad)
        torch.testing.assert_close(sum(r[3] for r in reduced).cpu(), layer.bias.grad)


def test_parts_of_one_size_need_no_counts():
    x = torch.randn(4, 3, 2)
    means, invstds = zip(*(torch.batch_norm_stats(part, EPS) for part in x.to(DEVICE).split(2)))
    arguments = x.to(DEVICE), torch.stack(means), torch.stack(invstds), None, None, MOMENTUM, EPS
    mean, invstd = torch.batch_norm_gather_stats(*arguments, 4)
    torch.testing.assert_close(mean.cpu(), x.mean((0, 2)))
    torch.testing.assert_close(invstd.cpu(), (x.var((0, 2), unbiased=False) + EPS).rsqrt())
