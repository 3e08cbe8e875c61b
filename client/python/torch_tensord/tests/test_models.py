"""Small models of the package transformers, with random weights, give on the device what they give on the CPU."""

import copy
import os

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="the package transformers isn't installed")
pytestmark = pytest.mark.filterwarnings("ignore")

DEVICE = "tensord"
LONG = os.environ.get("TENSORD_TEST_LONG", "0") not in ("", "0")
WORDS = 99
TEXT = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def gpt2():
    options = {"n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=WORDS, **options, **dropout))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT, **HEADS, num_key_value_heads=2))


def qwen2():
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**TEXT, **HEADS, num_key_value_heads=2))


def bert():
    return transformers.BertForMaskedLM(transformers.BertConfig(**TEXT, **HEADS, **NO_DROPOUT))


def t5():
    sizes = {"d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(vocab_size=WORDS, **sizes, dropout_rate=0.0, decoder_start_token_id=0)
    return transformers.T5ForConditionalGeneration(config)


def vit():
    sizes = {"image_size": 16, "patch_size": 4, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, **HEADS, **NO_DROPOUT))


def resnet():
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes, layer_type="basic"))


# ---- more models, for the long form


def mixtral():
    config = transformers.MixtralConfig(**TEXT, **HEADS, num_key_value_heads=2, num_local_experts=4)
    return transformers.MixtralForCausalLM(config)


def mamba():
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}
    return transformers.MambaForCausalLM(transformers.MambaConfig(vocab_size=WORDS, **sizes))


def deberta():
    config = transformers.DebertaV2Config(**TEXT, **HEADS, relative_attention=True, pos_att_type=["c2p", "p2c"])
    return transformers.DebertaV2ForMaskedLM(config)


CODER = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "pad_token_id": 1, "bos_token_id": 0,
    "eos_token_id": 2,
}  # fmt: skip


def bart():
    return transformers.BartForConditionalGeneration(transformers.BartConfig(vocab_size=WORDS, **CODER))


def whisper():
    options = {"max_source_positions": 20, "num_mel_bins": 8, "decoder_start_token_id": 0}
    config = transformers.WhisperConfig(vocab_size=WORDS, **CODER, **options)
    return transformers.WhisperForConditionalGeneration(config)


def wav2vec2():
    layers = {"conv_dim": [16, 16], "conv_kernel": [10, 3], "conv_stride": [5, 2], "num_feat_extract_layers": 2}
    options = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0}
    config = transformers.Wav2Vec2Config(**TEXT, **HEADS, **layers, **options, ctc_loss_reduction="mean")
    return transformers.Wav2Vec2ForCTC(config)


def swin():
    sizes = {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2]}
    return transformers.SwinForImageClassification(transformers.SwinConfig(**sizes, window_size=4))


def segformer():
    blocks = {"num_encoder_blocks": 2, "depths": [1, 1], "hidden_sizes": [8, 16], "num_attention_heads": [1, 2]}
    sizes = {"sr_ratios": [2, 1], "patch_sizes": [7, 3], "strides": [4, 2], "mlp_ratios": [2, 2]}
    config = transformers.SegformerConfig(**blocks, **sizes, decoder_hidden_size=16)
    return transformers.SegformerForSemanticSegmentation(config)


def without_dropout(model):
    for part in model.modules():
        for name in ("p", "dropout", "attention_dropout", "activation_dropout", "layerdrop", "drop_prob"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
    return model


MODELS = [gpt2, llama, qwen2, bert, t5, vit, resnet]
if LONG:
    MODELS += [mixtral, mamba, deberta, bart, whisper, wav2vec2, swin, segformer]


def inputs_of(make):
    if make is whisper:
        return {"input_features": torch.randn(2, 8, 40), "labels": torch.randint(2, WORDS, (2, 9))}
    if make is wav2vec2:
        return {"input_values": torch.randn(2, 400), "labels": torch.randint(1, WORDS, (2, 5))}
    if make is segformer:
        return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.randint(0, 2, (2, 32, 32))}
    if make in (vit, resnet, swin):
        return {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([0, 1])}
    words = torch.randint(2, WORDS, (2, 9))
    mask = (torch.arange(9) < torch.tensor([[9], [6]])).long()
    return {"input_ids": words, "labels": words.clone(), "attention_mask": mask}


def assert_equal_gradients(model, here):
    total = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    for (name, p), q in zip(model.named_parameters(), here.named_parameters()):
        assert (p.grad is None) == (q[1].grad is None), name
        if p.grad is None:
            continue
        difference = (q[1].grad.cpu() - p.grad).norm()
        # Some gradients are zero but for rounding, such as those of the biases of keys.
        assert difference <= 1e-4 * p.grad.norm() + 1e-7 * total, name


@pytest.mark.parametrize("make", MODELS)
def test_losses_and_gradients_agree_with_the_cpu(make):
    torch.manual_seed(0)
    model = without_dropout(make()).train()
    here = copy.deepcopy(model).to(DEVICE)
    inputs = inputs_of(make)
    expected = model(**inputs).loss
    got = here(**{name: x.to(DEVICE) for name, x in inputs.items()}).loss
    assert got.item() == pytest.approx(expected.item(), abs=1e-5)
    expected.backward()
    got.backward()
    assert_equal_gradients(model, here)


@pytest.mark.parametrize("make", [gpt2, llama, qwen2, t5])
def test_generated_tokens_are_those_of_the_cpu(make):
    torch.manual_seed(1)
    model = make().eval()
    here = copy.deepcopy(model).to(DEVICE)
    words = torch.randint(2, WORDS, (2, 9))
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "use_cache": True}
    expected = model.generate(words, **options)
    assert torch.equal(here.generate(words.to(DEVICE), **options).cpu(), expected)
