"""Makes a tiny Llama without weights and its tokenizer in the folder OUT: `make_model.py OUT`.

vLLM fills the weights by chance (`--load-format dummy`). The size is such that a CPU core serves a few requests a second.
"""

import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN, LAYERS, HEAD = 512, 4, 32
CONTEXT = 4096

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)


def write(name, content):
    (out / name).write_text(json.dumps(content, indent=1))


tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=list(special.values()), initial_alphabet=alphabet)
tokenizer.train_from_iterator(["the queue of a server has a request for each token of a model"] * 100, trainer)
tokenizer.save(str(out / "tokenizer.json"))
write(
    "tokenizer_config.json",
    {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, **special},
)
write(
    "config.json",
    {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HIDDEN // HEAD,
        "num_key_value_heads": HIDDEN // HEAD // 2,
        "head_dim": HEAD,
        # Prompts are token ids below 300.
        "vocab_size": 512,
        "max_position_embeddings": CONTEXT,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    },
)
