#!/usr/bin/env python3
"""Exports networks of timm, torchvision and transformers as PyTorch's users do, with seeded weights
that were never trained: times depend on shapes alone. No kernel was made for them.

usage: exported_models.py FOLDER [NAME ...]
Makes FOLDER/NAME/model.onnx with test_data_set_0: seeded inputs and what ONNX Runtime makes of
them; values of such networks may be large: check them with an --atol that suits
(FOLDER/NAME/largest has the largest one). What is there stays; what cannot be exported is told,
and left out.
needs: pip install torch torchvision timm transformers onnx onnxscript onnxruntime (some 3 GB)
"""
import argparse
import functools
import pathlib
import shutil

import numpy
import onnxruntime
import timm
import torch
import torchvision
import transformers

from packaged_models import write

# By the side of the image.
OF_IMAGES = {
    192: "tf_efficientnetv2_b0 tinynet_a",
    224: """cait_xxs24_224 coat_lite_tiny coatnet_nano_rw_224 convformer_s18 convnext_atto
        convnextv2_atto davit_tiny deit_tiny_patch16_224 dla34 efficientformer_l1 efficientnet_b0
        efficientvit_b0 efficientvit_m0 eva02_tiny_patch14_224 fasternet_t0 focalnet_tiny_srf
        gcresnext26ts gernet_s ghostnet_100 ghostnetv2_100 gmixer_12_224 hardcorenas_a hgnetv2_b0
        hrnet_w18_small inception_next_atto lcnet_050 levit_128s mambaout_femto
        mixer_s32_224 mnasnet_100 mobilenet_edgetpu_v2_xs mobilenetv3_small_100
        mobilenetv4_conv_small mobileone_s0 mvitv2_tiny nf_regnet_b0 poolformer_s12
        pvt_v2_b0 regnetx_004 regnety_002 repghostnet_050 repvgg_a0 repvit_m0_9 res2net50_26w_4s
        resmlp_12_224 resnest14d rexnet_100 selecsls42 sequencer2d_s seresnet18 shvit_s1
        skresnet18 starnet_s1 swiftformer_xs swin_tiny_patch4_window7_224 tiny_vit_5m_224
        tresnet_m twins_pcpvt_small visformer_tiny vit_tiny_patch16_224 xcit_tiny_12_p16_224""",
    240: "crossvit_tiny_240",
    256: """botnet26t_256 cspdarknet53 darknet53 ecaresnet26t edgenext_xx_small fastvit_t8
        lambda_resnet26rpt_256 mobilevit_xs mobilevitv2_050""",
    299: "inception_v4 xception41",
}
SMALL = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
         "intermediate_size": 1024}
TOKENS = 1000
# Encoders and decoders of text: kind, and what differs from SMALL.
OF_TEXT = {
    "albert": ("Albert", "Model", SMALL),
    "bert": ("Bert", "Model", SMALL),
    "bigbird": ("BigBird", "Model", SMALL | {"attention_type": "original_full"}),
    "bloom": ("Bloom", "ForCausalLM", {"hidden_size": 256, "n_layer": 4, "n_head": 4}),
    "convbert": ("ConvBert", "Model", SMALL),
    "deberta_v2": ("DebertaV2", "Model",
                   SMALL | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "distilbert": ("DistilBert", "Model",
                   {"dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 1024}),
    "electra": ("Electra", "Model", SMALL),
    "falcon": ("Falcon", "ForCausalLM", {"hidden_size": 256, "num_hidden_layers": 4,
                                         "num_attention_heads": 4}),
    "funnel": ("Funnel", "BaseModel", {"d_model": 256, "block_sizes": [2, 2], "n_head": 4,
                                       "d_head": 64, "d_inner": 1024}),
    "gemma2": ("Gemma2", "ForCausalLM", SMALL | {"num_key_value_heads": 2, "head_dim": 64}),
    "gpt2": ("GPT2", "LMHeadModel", {"n_embd": 256, "n_layer": 4, "n_head": 4}),
    "gpt_neox": ("GPTNeoX", "ForCausalLM", SMALL),
    "llama": ("Llama", "ForCausalLM", SMALL | {"num_key_value_heads": 2}),
    "mamba": ("Mamba", "ForCausalLM", {"hidden_size": 128, "num_hidden_layers": 2}),
    "mistral": ("Mistral", "ForCausalLM",
                SMALL | {"num_key_value_heads": 2, "sliding_window": 32}),
    "mobilebert": ("MobileBert", "Model", {"num_hidden_layers": 4}),
    "modernbert": ("ModernBert", "Model",
                   SMALL | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                            "cls_token_id": 1, "sep_token_id": 2}),
    "mpnet": ("MPNet", "Model", SMALL),
    "olmo2": ("Olmo2", "ForCausalLM", SMALL),
    "opt": ("OPT", "ForCausalLM", {"hidden_size": 256, "num_hidden_layers": 4,
                                   "num_attention_heads": 4, "ffn_dim": 1024,
                                   "word_embed_proj_dim": 256}),
    "phi": ("Phi", "ForCausalLM", SMALL),
    "qwen3": ("Qwen3", "ForCausalLM", SMALL | {"num_key_value_heads": 2, "head_dim": 64}),
    "roberta": ("Roberta", "Model", SMALL),
    "roformer": ("RoFormer", "Model", SMALL),
    "squeezebert": ("SqueezeBert", "Model", SMALL | {"embedding_size": 256}),
    "stablelm": ("StableLm", "ForCausalLM", SMALL | {"num_key_value_heads": 4}),
    "tapas": ("Tapas", "Model", SMALL),
    "t5_encoder": ("T5", "EncoderModel", {"d_model": 256, "d_kv": 64, "d_ff": 1024,
                                          "num_layers": 4, "num_heads": 4}),
}
UNMASKED = SMALL | {"mask_time_prob": 0, "mask_feature_prob": 0}
CLIPS = SMALL | {"image_size": 112, "num_frames": 8}
OF_SOUND_AND_IMAGES = {
    "ast": ("AST", "Model", SMALL | {"max_length": 256}, "input_values", [1, 256, 128]),
    "clip_vision": ("CLIPVision", "Model", SMALL | {"image_size": 224, "patch_size": 32},
                    "pixel_values", [1, 3, 224, 224]),
    "dinov2": ("Dinov2", "Model", SMALL | {"image_size": 224, "patch_size": 14}, "pixel_values",
               [1, 3, 224, 224]),
    "glpn": ("GLPN", "ForDepthEstimation", {}, "pixel_values", [1, 3, 128, 160]),
    "hubert": ("Hubert", "Model", UNMASKED, "input_values", [1, 16000]),
    "segformer": ("Segformer", "ForSemanticSegmentation", {"num_labels": 19}, "pixel_values",
                  [1, 3, 256, 256]),
    "siglip_vision": ("SiglipVision", "Model", SMALL | {"image_size": 224, "patch_size": 16},
                      "pixel_values", [1, 3, 224, 224]),
    "swin2sr": ("Swin2SR", "ForImageSuperResolution",
                {"image_size": 64, "embed_dim": 60, "depths": [2, 2], "num_heads": [6, 6],
                 "window_size": 8, "upscale": 2}, "pixel_values", [1, 3, 64, 64]),
    "timesformer": ("Timesformer", "Model", CLIPS, "pixel_values", [1, 8, 3, 112, 112]),
    "unispeech": ("UniSpeech", "Model", UNMASKED, "input_values", [1, 16000]),
    "videomae": ("VideoMAE", "Model", CLIPS, "pixel_values", [1, 8, 3, 112, 112]),
    "wav2vec2": ("Wav2Vec2", "Model", UNMASKED, "input_values", [1, 16000]),
    "wavlm": ("WavLM", "Model", UNMASKED, "input_values", [1, 16000]),
    "yolos": ("Yolos", "ForObjectDetection",
              SMALL | {"image_size": [256, 256], "patch_size": 16}, "pixel_values",
              [1, 3, 256, 256]),
}

PLACES = {"num_classes": 5, "weights": None, "weights_backbone": None}
FEW = PLACES | {"min_size": 160, "max_size": 160, "box_score_thresh": 0.0,
                "box_detections_per_img": 10, "rpn_post_nms_top_n_test": 50}
DENSE = PLACES | {"min_size": 160, "max_size": 160, "score_thresh": 0.0,
                  "detections_per_img": 20, "topk_candidates": 50}
# Detectors of torchvision, on images of 160 pixels; data decides how many places they give. Their
# scores lie close together without training: which places they choose may differ.
OF_PLACES = {
    "faster_rcnn_mobilenet": ("fasterrcnn_mobilenet_v3_large_320_fpn",
                              PLACES | {"box_score_thresh": 0.0, "box_detections_per_img": 20,
                                        "rpn_post_nms_top_n_test": 50}),
    "fcos": ("fcos_resnet50_fpn", DENSE),
    "keypoint_rcnn": ("keypointrcnn_resnet50_fpn", FEW | {"num_classes": 2}),
    "mask_rcnn": ("maskrcnn_resnet50_fpn", FEW),
    "retinanet": ("retinanet_resnet50_fpn", DENSE),
    "ssdlite": ("ssdlite320_mobilenet_v3_large", PLACES | {"detections_per_img": 20}),
}


class Detector(torch.nn.Module):
    """A detector of one image."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, image):
        return tuple(self.network([image])[0].values())


class Speech(torch.nn.Module):
    """VITS without its noise: how long the wave is hangs on the text."""

    def __init__(self):
        super().__init__()
        self.network = transformers.VitsModel(transformers.VitsConfig(
            hidden_size=96, num_hidden_layers=2, ffn_dim=192, flow_size=96, spectrogram_bins=257,
            upsample_initial_channel=128, prior_encoder_num_flows=2,
            prior_encoder_num_wavenet_layers=2, duration_predictor_num_flows=2,
            duration_predictor_filter_channels=96))
        self.network.noise_scale = self.network.noise_scale_duration = 0.0

    def forward(self, tokens, mask):
        return self.network(input_ids=tokens, attention_mask=mask).waveform


class First(torch.nn.Module):
    """The first tensor of what a network of transformers gives, its inputs by place."""

    def __init__(self, network, names, fixed):
        super().__init__()
        self.network, self.names, self.fixed = network, names, fixed

    def forward(self, *inputs):
        named = dict(zip(self.names, inputs))
        results = self.network(**named, **self.fixed, return_dict=True).values()
        return next(result for result in results if isinstance(result, torch.Tensor))


class Recurrent(torch.nn.Module):
    """Two layers of LSTMs in both directions between an embedding and a classifier."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(TOKENS, 128)
        self.lstm = torch.nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True)
        self.classifier = torch.nn.Linear(512, 10)

    def forward(self, tokens):
        return self.classifier(self.lstm(self.embedding(tokens))[0].mean(1))


def tokens():
    return torch.randint(0, TOKENS, (1, 64))


def of_transformers(kind, task, settings, names, inputs, **fixed):
    config = getattr(transformers, kind + "Config")(**settings)
    return First(getattr(transformers, kind + task)(config), names, fixed), inputs, names


def of_text(kind, task, settings):
    fixed = {"use_cache": False} if task.endswith(("ForCausalLM", "LMHeadModel")) else {}
    inputs = [tokens(), torch.ones(1, 64, dtype=torch.long)]
    return of_transformers(kind, task, {"vocab_size": TOKENS} | settings,
                           ["input_ids", "attention_mask"], inputs, **fixed)


def of_image(make, side):
    return make(), [torch.randn(1, 3, side, side)], ["x"]


def of_places(kind, settings):
    network = getattr(torchvision.models.detection, kind)(**settings)
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.1)
            layer.running_var.uniform_(0.5, 1.5)
    return Detector(network), [torch.rand(3, 160, 160)], ["image"]


def of_speech():
    text = torch.randint(0, 38, (1, 24))
    return Speech(), [text, torch.ones_like(text)], ["tokens", "mask"]


def networks():
    """By name: what makes a network, its inputs, and their names."""
    found = {"bilstm": lambda: (Recurrent(), [tokens()], ["tokens"]), "vits": of_speech}
    for name, (kind, settings) in OF_PLACES.items():
        found[name] = functools.partial(of_places, kind, settings)
    for side, names in OF_IMAGES.items():
        for name in names.split():
            make = functools.partial(timm.create_model, name, pretrained=False)
            found[name] = functools.partial(of_image, make, side)
    for name in ("mobilenet_v2", "shufflenet_v2_x1_0", "squeezenet1_1"):
        found[name] = functools.partial(of_image, getattr(torchvision.models, name), 224)
    for name, (kind, task, settings) in OF_TEXT.items():
        found[name] = functools.partial(of_text, kind, task, settings)
    for name, (kind, task, settings, read, dims) in OF_SOUND_AND_IMAGES.items():
        found[name] = lambda kind=kind, task=task, settings=settings, read=read, dims=dims: (
            of_transformers(kind, task, settings, [read], [torch.randn(dims)]))
    return found


def export(make, folder):
    torch.manual_seed(0)
    network, inputs, names = make()
    folder.mkdir(parents=True)
    model = str(folder / "model.onnx")
    with torch.no_grad():
        torch.onnx.export(network.eval(), tuple(inputs), model, input_names=names,
                          dynamo=not isinstance(network, (Recurrent, Detector, Speech)),
                          external_data=False)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    # What nothing reads is no input any more.
    kept = {value.name for value in session.get_inputs()}
    feeds = {name: value.numpy() for name, value in zip(names, inputs) if name in kept}
    results = session.run(None, feeds)
    case = folder / "test_data_set_0"
    case.mkdir()
    write(case, "input", feeds.items())
    write(case, "output", zip([value.name for value in session.get_outputs()], results))
    largest = max(float(numpy.abs(result).max()) for result in results)
    (folder / "largest").write_text(f"{largest}\n")


def main():
    everything = networks()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=list(everything), metavar="NAME",
                        help=f"of {', '.join(everything)}")
    arguments = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    for name in arguments.names:
        if name not in everything:
            parser.error(f"There is no network ({name}).")
        folder = arguments.folder / name
        if folder.exists():
            continue
        try:
            export(everything[name], folder)
            print(name, flush=True)
        except Exception as error:  # whatever an exporter raises
            shutil.rmtree(folder, ignore_errors=True)
            print(f"{name} was not exported: {type(error).__name__}", flush=True)


if __name__ == "__main__":
    main()
