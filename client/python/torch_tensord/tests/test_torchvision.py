"""torchvision's ops. Their expected values are those of torchvision on the CPU."""

import pytest
import torch

torchvision = pytest.importorskip("torchvision")


def _boxes(count):
    torch.manual_seed(0)
    boxes = torch.rand(count, 4) * 30 - 4
    boxes[:, 2:] += boxes[:, :2] + 4
    return boxes


@pytest.mark.parametrize("count", [200, 0])
def test_nms_keeps_the_boxes_that_the_cpu_keeps(count):
    boxes, scores = _boxes(count), torch.rand(count)
    expected = torchvision.ops.nms(boxes, scores, 0.3)
    made = torchvision.ops.nms(boxes.to("tensord"), scores.to("tensord"), 0.3)
    assert made.device.type == "tensord" and torch.equal(made.cpu(), expected)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("sampling_ratio", [-1, 2])
@pytest.mark.parametrize("count", [30, 0])
def test_roi_align_and_its_gradient(count, sampling_ratio, aligned):
    rois = torch.cat([torch.arange(count)[:, None] % 2, _boxes(count)], 1)
    features = torch.randn(2, 3, 20, 24)
    made = []
    for device in ("cpu", "tensord"):
        x = features.to(device, copy=True).requires_grad_()
        y = torchvision.ops.roi_align(x, rois.to(device), (5, 7), 0.5, sampling_ratio, aligned)
        y.sin().sum().backward()
        made.append((y.detach().cpu(), x.grad.cpu()))
    torch.testing.assert_close(made[1], made[0])
