"""Programs like those of courses and tutorials: training on the device gives the losses of the CPU."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "tensord"
STEPS = 6
PROGRAMS = []


def program(f):
    """Adds a function that trains on a device for STEPS steps, and returns the losses."""
    PROGRAMS.append(f)
    return f


def train(module, data, loss_of, device, make_optimizer):
    """Trains a module on one batch. `loss_of` gets the module and the batch."""
    module.to(device)
    batch = [x.to(device) for x in data]
    optimizer = make_optimizer(module.parameters())
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(module, *batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def classify(module, x, y):
    return F.cross_entropy(module(x), y)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


@program
def linear_regression_from_scratch(device):
    x = torch.randn(100, 2).to(device)
    y = x @ torch.tensor([[2.0], [-3.4]]).to(device) + 4.2
    w = torch.zeros(2, 1).to(device).requires_grad_()
    b = torch.zeros(1, device=device, requires_grad=True)
    losses = []
    for step in range(STEPS):
        rows = slice(step * 16, step * 16 + 16)
        loss = ((x[rows] @ w + b - y[rows]) ** 2 / 2).mean()
        loss.backward()
        with torch.no_grad():
            for parameter in (w, b):
                parameter -= 0.3 * parameter.grad
                parameter.grad.zero_()
        losses.append(loss.item())
    return losses


@program
def softmax_regression_from_scratch(device):
    x, y = torch.randn(32, 20).to(device), torch.randint(0, 5, (32,)).to(device)
    w = (torch.randn(20, 5) * 0.01).to(device).requires_grad_()
    b = torch.zeros(5, device=device, requires_grad=True)
    losses = []
    for _ in range(STEPS):
        exponents = torch.exp(x @ w + b)
        probabilities = exponents / exponents.sum(1, keepdim=True)
        loss = -torch.log(probabilities[range(len(y)), y]).mean()
        accuracy = (probabilities.argmax(1).type(y.dtype) == y).float().mean()
        gradients = torch.autograd.grad(loss, (w, b))
        with torch.no_grad():
            for parameter, gradient in zip((w, b), gradients):
                parameter.sub_(gradient, alpha=0.5)
        losses += [loss.item(), accuracy.item()]
    return losses


@program
def perceptron_with_weight_decay(device):
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    for layer in module:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    data = torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,))
    return train(module, data, classify, device, lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01))


@program
def dropout_from_scratch(device):
    masks = (torch.rand(STEPS, 16, 32) > 0.5).to(device)
    first, second = nn.Linear(20, 32).to(device), nn.Linear(32, 3).to(device)
    x, y = torch.randn(16, 20).to(device), torch.randint(0, 3, (16,)).to(device)
    optimizer = sgd([*first.parameters(), *second.parameters()])
    losses = []
    for mask in masks:
        loss = F.cross_entropy(second(mask * torch.relu(first(x)) / 0.5), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def lenet(device):
    module = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2, 2), nn.Conv2d(6, 16, 5), nn.Sigmoid(),
        nn.AvgPool2d(2, 2), nn.Flatten(), nn.Linear(256, 120), nn.Sigmoid(), nn.Linear(120, 10),
    )  # fmt: skip
    data = torch.randn(4, 1, 24, 24), torch.randint(0, 10, (4,))
    return train(module, data, classify, device, sgd)


@program
def convolution_from_scratch(device):
    """Learns an edge detector."""
    x = torch.ones(6, 8).to(device)
    x[:, 2:6] = 0
    y = x[:, :-1] - x[:, 1:]
    kernel = torch.tensor([[0.3, -0.2]]).to(device).requires_grad_()
    losses = []
    for _ in range(STEPS):
        rows = [[(x[i : i + 1, j : j + 2] * kernel).sum() for j in range(7)] for i in range(6)]
        loss = ((torch.stack([torch.stack(row) for row in rows]) - y) ** 2).sum()
        loss.backward()
        kernel.data[:] -= 0.03 * kernel.grad
        kernel.grad = None
        losses.append(loss.item())
    return losses


class BatchNorm(nn.Module):
    """Batch normalization of its own, with buffers that are updated in place."""

    def __init__(self, channels):
        super().__init__()
        shape = (1, channels, 1, 1)
        self.gamma, self.beta = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))
        self.mean: torch.Tensor
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))

    def forward(self, x):
        mean = x.mean(dim=(0, 2, 3), keepdim=True)
        var = ((x - mean) ** 2).mean(dim=(0, 2, 3), keepdim=True)
        self.mean = 0.9 * self.mean + 0.1 * mean.detach()
        self.var.mul_(0.9).add_(0.1 * var.detach())
        return self.gamma * (x - mean) / torch.sqrt(var + 1e-5) + self.beta


@program
def batch_norm_from_scratch(device):
    layers = [nn.Conv2d(3, 8, 3, padding=1), BatchNorm(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    module = nn.Sequential(*layers)
    data = torch.randn(4, 3, 8, 8), torch.randint(0, 8, (4,))
    losses = train(module, data, classify, device, sgd)
    return losses + module[1].mean.flatten().tolist() + module[1].var.flatten().tolist()


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)), inplace=True)))
        return F.relu(y.add_(x if self.shortcut is None else self.shortcut(x)))


def make_resnet18(width, classes):
    """ResNet-18, with `width` channels in the first stage in place of 64."""
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = width
    for stage in range(4):
        outputs = width << stage
        layers += [Residual(channels, outputs, 1 if stage == 0 else 2), Residual(outputs, outputs)]
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


@program
def residual_network(device):
    layers = [nn.Conv2d(3, 8, 3, padding=1), Residual(8, 8), Residual(8, 16, 2), nn.AdaptiveAvgPool2d(1)]
    data = torch.randn(8, 3, 12, 12), torch.randint(0, 10, (8,))
    optimizer = lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9)
    return train(nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 10)), data, classify, device, optimizer)


@program
def recurrent_network_from_scratch(device):
    words = torch.randint(0, 12, (4, 9)).to(device)
    parameters = [torch.randn(*s) * 0.3 for s in ((12, 16), (16, 16), (16, 12))]
    parameters += [torch.zeros(16), torch.zeros(12)]
    w_x, w_h, w_o, b_h, b_o = (parameters := [p.to(device).requires_grad_() for p in parameters])
    losses = []
    for _ in range(STEPS):
        state, outputs = torch.zeros(4, 16, device=device), []
        for x in F.one_hot(words[:, :-1].T, 12).float():
            state = torch.tanh(x @ w_x + state @ w_h + b_h)
            outputs.append(state @ w_o + b_o)
        loss = F.cross_entropy(torch.cat(outputs), words[:, 1:].T.reshape(-1))
        loss.backward()
        with torch.no_grad():
            norm = math.sqrt(sum((p.grad**2).sum().item() for p in parameters))
            for p in parameters:
                p -= 0.5 * p.grad * min(1.0, 1.0 / norm)
                p.grad.zero_()
        losses.append(loss.item())
    return losses


class LanguageModel(nn.Module):
    def __init__(self, kind, layers):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.network = kind(8, 16, num_layers=layers, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, words):
        return self.head(self.network(self.embedding(words))[0])


def next_word(module, words):
    return F.cross_entropy(module(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


@program
def gated_recurrent_units(device):
    return train(LanguageModel(nn.GRU, 2), [torch.randint(0, 20, (4, 8))], next_word, device, adam)


@program
def long_short_term_memory(device):
    return train(LanguageModel(nn.LSTM, 2), [torch.randint(0, 20, (4, 8))], next_word, device, adam)


class Translator(nn.Module):
    """An encoder, and a decoder with additive attention over the encoder's states, with masks of lengths."""

    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(15, 8), nn.Embedding(17, 8)
        self.encoder, self.decoder = nn.GRU(8, 12), nn.GRU(20, 12)
        self.query, self.key, self.score = nn.Linear(12, 10), nn.Linear(12, 10), nn.Linear(10, 1, bias=False)
        self.head = nn.Linear(12, 17)

    def forward(self, source, lengths, target):
        states, hidden = self.encoder(self.source(source.T))
        states = states.permute(1, 0, 2)
        valid = torch.arange(source.shape[1], device=source.device)[None] < lengths[:, None]
        outputs = []
        for x in self.target(target).permute(1, 0, 2):
            scores = self.score(torch.tanh(self.query(hidden[-1]).unsqueeze(1) + self.key(states))).squeeze(-1)
            weights = F.softmax(scores.masked_fill(~valid, -1e6), dim=-1)
            context = torch.bmm(weights.unsqueeze(1), states)
            y, hidden = self.decoder(torch.cat((context.squeeze(1), x), -1).unsqueeze(0), hidden)
            outputs.append(y)
        return self.head(torch.cat(outputs)).permute(1, 0, 2)


@program
def translation_with_attention(device):
    def loss_of(module, source, lengths, target):
        scores = module(source, lengths, target[:, :-1]).permute(0, 2, 1)
        loss = F.cross_entropy(scores, target[:, 1:], reduction="none")
        valid = torch.arange(loss.shape[1], device=loss.device)[None] < lengths[:, None]
        return (loss * valid).sum() / valid.sum()

    data = torch.randint(0, 15, (3, 6)), torch.tensor([6, 3, 4]), torch.randint(0, 17, (3, 7))
    return train(Translator(), data, loss_of, device, adam)


@program
def transformer_encoder(device):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(20, 16)
            angles = torch.arange(9.0)[:, None] / 10000 ** (torch.arange(0, 16, 2) / 16)
            position = torch.zeros(1, 9, 16)
            position[:, :, 0::2], position[:, :, 1::2] = torch.sin(angles), torch.cos(angles)
            self.register_buffer("position", position)
            layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
            self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(16, 4)

        def forward(self, words, lengths):
            padding = torch.arange(words.shape[1], device=words.device)[None] >= lengths[:, None]
            x = self.embedding(words) * math.sqrt(16) + self.position[:, : words.shape[1]]
            return self.head(self.layers(x, src_key_padding_mask=padding)[:, 0])

    data = torch.randint(0, 20, (4, 9)), torch.tensor([9, 5, 7, 3]), torch.tensor([0, 1, 2, 3])
    return train(Encoder(), data, lambda m, x, n, y: F.cross_entropy(m(x, n), y), device, adam)


@program
def optimizers_from_scratch(device):
    """Momentum, Adagrad, RMSProp and Adam on one function, and a schedule of rates."""
    results = []
    for kind in ("momentum", "adagrad", "rmsprop", "adam"):
        x = torch.tensor([-5.0, -2.0]).to(device).requires_grad_()
        first, second = torch.zeros(2, device=device), torch.zeros(2, device=device)
        for t in range(1, STEPS + 1):
            loss = 0.1 * x[0] ** 2 + 2 * x[1] ** 2
            loss.backward()
            with torch.no_grad():
                g = x.grad
                if kind == "momentum":
                    first[:] = 0.5 * first + g
                    x[:] -= 0.2 * first
                elif kind == "adagrad":
                    second.add_(torch.square(g))
                    x[:] -= 0.4 * g / torch.sqrt(second + 1e-6)
                elif kind == "rmsprop":
                    second.copy_(0.9 * second + 0.1 * g**2)
                    x.addcdiv_(g, (second + 1e-6).sqrt(), value=-0.4)
                else:
                    first.lerp_(g, 0.1)
                    second.mul_(0.999).addcmul_(g, g, value=0.001)
                    x.sub_(0.1 * (first / (1 - 0.9**t)) / (torch.sqrt(second / (1 - 0.999**t)) + 1e-6))
            x.grad.data.zero_()
            results.append(loss.item())
    module = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    data = torch.randn(8, 4).to(device)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.huber_loss(module(data).squeeze(1), data.sum(1))
        loss.backward()
        optimizer.step()
        schedule.step()
        results.append(loss.item())
    return results


# ---- programs like those of PyTorch's tutorials


@program
def spatial_transformer(device):
    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.localization = nn.Sequential(nn.Conv2d(1, 4, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
            self.theta, self.head = nn.Linear(144, 6), nn.Linear(256, 5)
            self.theta.weight.data.zero_()
            self.theta.bias.data.copy_(torch.tensor([1, 0.1, 0.05, 0, 1, 0.1]))

        def forward(self, x):
            grid = F.affine_grid(self.theta(self.localization(x)).view(-1, 2, 3), x.size(), align_corners=False)
            return self.head(F.grid_sample(x, grid, align_corners=False).flatten(1))

    data = torch.randn(4, 1, 16, 16), torch.randint(0, 5, (4,))
    return train(Transformer(), data, classify, device, lambda p: torch.optim.SGD(p, lr=0.01))


@program
def adversarial_networks(device):
    first = [nn.ConvTranspose2d(8, 16, 4, bias=False), nn.BatchNorm2d(16), nn.ReLU(True)]
    generator = nn.Sequential(*first, nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh()).to(device)
    second = [nn.Conv2d(3, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    critic = nn.Sequential(*second, nn.Conv2d(8, 1, 4, bias=False), nn.Sigmoid(), nn.Flatten(0)).to(device)
    steps = [torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (critic, generator)]
    noise, real = torch.randn(4, 8, 1, 1).to(device), torch.randn(4, 3, 8, 8).to(device)
    label, losses = torch.ones(4, device=device), []
    for _ in range(3):
        critic.zero_grad()
        fake = generator(noise)
        loss = F.binary_cross_entropy(critic(real), label.fill_(1.0))
        loss = loss + F.binary_cross_entropy(critic(fake.detach()), torch.zeros_like(label))
        loss.backward()
        steps[0].step()
        generator.zero_grad()
        other = F.binary_cross_entropy(critic(fake), label)
        other.backward()
        steps[1].step()
        losses += [loss.item(), other.item()]
    return losses


@program
def deep_q_learning(device):
    policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
    target = copy.deepcopy(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
    states, actions = torch.randn(8, 4).to(device), torch.randint(0, 2, (8, 1)).to(device)
    rewards, alive = torch.randn(8).to(device), torch.tensor([True, False] * 4, device=device)
    losses = []
    for _ in range(STEPS):
        values = torch.zeros(8, device=device)
        with torch.no_grad():
            values[alive] = target(states[alive] + 1).max(1).values
        loss = F.smooth_l1_loss(policy(states).gather(1, actions), (values * 0.99 + rewards).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        state = target.state_dict()
        for name, x in policy.state_dict().items():
            state[name] = x * 0.05 + state[name] * 0.95
        target.load_state_dict(state)
        losses.append(loss.item())
    return losses


@program
def speech_with_packed_sequences(device):
    class Recognizer(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv1d(8, 12, 3, padding=1)
            self.network, self.head = nn.LSTM(12, 6, bidirectional=True, batch_first=True), nn.Linear(12, 5)

        def forward(self, x, lengths):
            x = F.relu(self.convolution(x)).transpose(1, 2)
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
            states, _ = nn.utils.rnn.pad_packed_sequence(self.network(packed)[0], batch_first=True)
            return self.head(states).log_softmax(-1).transpose(0, 1)

    lengths = torch.tensor([7, 5])
    data = torch.randn(2, 8, 7), torch.tensor([[1, 2], [3, 3]])
    loss_of = lambda m, x, y: F.ctc_loss(m(x, lengths), y, lengths, torch.tensor([2, 2]))
    return train(Recognizer(), data, loss_of, device, adam)


@program
def segmentation_with_all_kinds_of_padding(device):
    class Segmenter(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect")
            self.second = nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")
            self.last = nn.Conv2d(8, 1, 3, padding=1, padding_mode="replicate")
            self.norm, self.up = nn.GroupNorm(2, 4), nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)

        def forward(self, x):
            x = F.silu(self.norm(self.first(x)))
            return self.last(torch.cat([x, self.up(self.second(F.max_pool2d(x, 2)))], 1))

    loss_of = lambda m, x, y: F.binary_cross_entropy_with_logits(m(x), y)
    return train(Segmenter(), (torch.randn(2, 1, 8, 8), torch.rand(2, 1, 8, 8)), loss_of, device, adam)


@program
def normalized_weights_and_averages(device):
    from torch.nn.utils import parametrizations
    from torch.optim import swa_utils

    layers = [parametrizations.weight_norm(nn.Linear(4, 6)), nn.Tanh(), parametrizations.spectral_norm(nn.Linear(6, 3))]
    module = nn.Sequential(*layers)
    losses = train(module, (torch.randn(5, 4), torch.randint(0, 3, (5,))), classify, device, sgd)
    averaged = swa_utils.AveragedModel(nn.Linear(4, 2).to(device), multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    for _ in range(3):
        averaged.update_parameters(nn.Linear(4, 2).to(device))
    return losses + averaged.module.weight.flatten().tolist()


@program
def bags_of_words_and_a_graph(device):
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.bags, self.head = nn.EmbeddingBag(20, 8), nn.Linear(8, 3)

        def forward(self, words, offsets, edges):
            x = self.bags(words, offsets)
            degrees = torch.zeros(len(x), device=x.device).scatter_add_(0, edges[1], torch.ones_like(edges[1]).float())
            mixed = torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]]) / degrees.clamp(min=1)[:, None]
            return self.head(x + mixed)

    data = torch.randint(0, 20, (15,)), torch.tensor([0, 4, 9]), torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
    loss_of = lambda m, w, o, e: F.cross_entropy(m(w, o, e), torch.arange(3, device=w.device))
    return train(Classifier(), data, loss_of, device, sgd)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("run", PROGRAMS, ids=lambda f: f.__name__)
def test_losses_of_a_program_are_those_of_the_cpu(run):
    torch.manual_seed(7)
    expected = run("cpu")
    torch.manual_seed(7)
    assert run(DEVICE) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_resnet18_gives_the_gradients_of_the_cpu():
    torch.manual_seed(5)
    x, y = torch.randn(2, 3, 64, 64), torch.tensor([1, 7])
    # In float64, the gradients don't depend on the order of the sums of 18 layers.
    model = make_resnet18(16, 10).double()
    state = model.state_dict()
    here = make_resnet18(16, 10).double().to(DEVICE)
    here.load_state_dict(state)
    expected, got = classify(model, x.double(), y), classify(here, x.double().to(DEVICE), y.to(DEVICE))
    assert got.item() == pytest.approx(expected.item(), abs=1e-5)
    expected.backward()
    got.backward()
    for (name, p), q in zip(model.named_parameters(), here.parameters()):
        assert (q.grad.cpu() - p.grad).norm() <= 1e-4 * p.grad.norm(), name
