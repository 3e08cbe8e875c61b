"""Kernels of torchvision's ops nms and roi_align, for models that detect objects.

torchvision defines the ops when it is imported, before or after these kernels are registered.
"""

from collections.abc import Iterator

import torch
from torch import library

_MAX_ELEMENTS = 1 << 25  # of the corners that roi_align reads at a time

_kernels = library.Library("torchvision", "IMPL", "PrivateUse1")


def _nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Returns the indices of the boxes to keep, by decreasing score. Waits, because their number depends on values.

    This machine's CPU chooses them, because each choice depends on those before it.
    """
    kept = torch.ops.torchvision.nms(boxes.cpu(), scores.cpu(), iou_threshold)
    return kept.to(boxes.device)


def _interpolation(
    start: torch.Tensor, size: torch.Tensor, bins: int, samples: int, limit: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns indices and weights, (rois, bins, samples, 2), of the pixels that the bins read on one axis.

    `start` is where the first bin begins, and `size` is the size of a bin, both (rois, 1, 1). If `samples` is 0, a roi
    has as many samples as one of its bins has pixels, rounded up. This function then waits for the maximum.
    """
    count = torch.full_like(size, samples) if samples > 0 else size.ceil()
    most = samples if samples > 0 else max(int(count.max().item()), 1)
    each = torch.arange(most, device=start.device, dtype=start.dtype)
    steps = torch.arange(bins, device=start.device, dtype=start.dtype)[:, None]
    at = start + steps * size + (each + 0.5) * size / count.clamp(min=1)
    counts = (at >= -1) & (at <= limit) & (each < count)
    at = at.clamp(0, limit - 1)
    low = at.floor()
    part = at - low
    weights = torch.stack((1 - part, part), -1) * (counts / count.clamp(min=1))[..., None]
    return torch.stack((low, (low + 1).clamp(max=limit - 1)), -1).long(), weights


def _corners(
    rois: torch.Tensor,
    shape: tuple[int, int, int, int],
    scale: float,
    pooled: tuple[int, int],
    sampling_ratio: int,
    aligned: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the rows that each bin reads, and their weights, both (rois, bins, corners).

    A row is one of the input's in the shape (batch * height * width, channels).
    """
    _, _, height, width = shape
    batch = rois[:, 0].long()
    starts = rois[:, 1:3] * scale - (0.5 if aligned else 0.0)
    sizes = rois[:, 3:5] * scale - (0.5 if aligned else 0.0) - starts
    if not aligned:
        sizes = sizes.clamp(min=1)
    axes = []
    for axis, bins, limit in ((1, pooled[0], height), (0, pooled[1], width)):
        start, size = starts[:, axis, None, None], sizes[:, axis, None, None] / bins
        axes.append(_interpolation(start, size, bins, max(sampling_ratio, 0), limit))
    (rows, row_weights), (columns, column_weights) = axes
    rows, row_weights = rows.flatten(2)[:, :, None, :, None], row_weights.flatten(2)[:, :, None, :, None]
    columns, column_weights = (each.flatten(2)[:, None, :, None, :] for each in (columns, column_weights))
    pixels = (batch[:, None, None, None, None] * height + rows) * width + columns
    bins = pooled[0] * pooled[1]
    return pixels.reshape(len(rois), bins, -1), (row_weights * column_weights).reshape(len(rois), bins, -1)


def _chunks(pixels: torch.Tensor, channels: int) -> Iterator[slice]:
    """Yields slices of the rois, each of which reads a bounded number of elements."""
    step = max(_MAX_ELEMENTS // max(pixels[0].numel() * channels, 1), 1)
    return (slice(i, i + step) for i in range(0, len(pixels), step))


def _roi_align(
    features: torch.Tensor,
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> torch.Tensor:
    channels, pooled = features.shape[1], (pooled_height, pooled_width)
    if len(rois) == 0:
        return features.new_zeros((0, channels, *pooled))
    pixels, weights = _corners(rois.float(), features.shape, spatial_scale, pooled, sampling_ratio, aligned)
    rows = features.permute(0, 2, 3, 1).reshape(-1, channels)
    made = []
    for part in _chunks(pixels, channels):
        read = rows.index_select(0, pixels[part].flatten()).view(*pixels[part].shape, channels)
        made.append((read.float() * weights[part][..., None]).sum(2))
    return torch.cat(made).transpose(1, 2).reshape(len(rois), channels, *pooled).to(features.dtype)


def _roi_align_backward(
    grad: torch.Tensor,
    rois: torch.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> torch.Tensor:
    shape, pooled = (batch_size, channels, height, width), (pooled_height, pooled_width)
    rows = torch.zeros(batch_size * height * width, channels, device=grad.device)
    if len(rois) > 0:
        pixels, weights = _corners(rois.float(), shape, spatial_scale, pooled, sampling_ratio, aligned)
        each = grad.float().flatten(2).transpose(1, 2)[:, :, None, :]
        for part in _chunks(pixels, channels):
            rows.index_add_(0, pixels[part].flatten(), (each[part] * weights[part][..., None]).reshape(-1, channels))
    return rows.view(batch_size, height, width, channels).permute(0, 3, 1, 2).to(grad.dtype).contiguous()


def register() -> None:
    """Registers the kernels. Call it once."""
    _kernels.impl("nms", _nms)
    _kernels.impl("roi_align", _roi_align)
    _kernels.impl("_roi_align_backward", _roi_align_backward)
