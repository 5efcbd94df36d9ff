"""A transformer without its head, as transformers makes it of a config.json."""

import safetensors.torch
import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import CONFIG_MAPPING, AutoModel

from choices import Choices, logits, parts
from connection import Refused
from tokens import INPUT_ROWS, OUTPUT_ROWS, Tokens

ATTENTION = "sdpa"
PREFIX = "model."  # of a trunk's tensors in files
HEAD = "lm_head.weight"
OUTPUT = "output_layer"  # its name among a module's parameters
# A layer keeps about KEPT numbers for each of a token's hidden ones until the backward pass. They may take MOST_KEPT bytes
# on a CPU, and this part of a GPU's memory. Where fewer than LEAST tokens fit, passes are larger than that, and each
# layer's numbers are computed again in the backward pass, which takes a third more time.
KEPT = 40
MOST_KEPT = 2 << 30
PART_KEPT = 1 / 8
LEAST = 512


def room(device, dtype, layers, width):
    """The most tokens of a pass whose activations are kept."""
    most = MOST_KEPT
    if device.type == "cuda":
        most = torch.cuda.get_device_properties(device).total_memory * PART_KEPT
    return int(most / (layers * width * KEPT * dtype.itemsize))


def config(text):
    kind = text.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise Refused(f"model_type {kind!r}: this version of transformers has no such model")
    made = CONFIG_MAPPING[kind].from_dict(text)
    made.attention_dropout = 0.0
    made.use_cache = False
    return made


def read(path):
    """The tensors of a file by name."""
    return safetensors.torch.load_file(path)


class Trunk:
    cached = True  # sampling keeps keys and values

    def __init__(self, config, device, dtype, tick, among, products=None, offload=False):
        """Spread among ranks; products is the type that tensors are put together in, None for their own. With offload
        ranks keep their rows in the CPU's memory."""
        with among.module(device):
            self.module = AutoModel.from_config(config, dtype=dtype, attn_implementation=ATTENTION)
            self.module.register_parameter(OUTPUT, None)  # the output layer, if embeddings are not tied
        self.config, self.device, self.tick, self.ranks = config, device, tick, among
        self.dtype, self.products, self.offload = dtype, products, offload
        self.room = room(device, products or dtype, config.num_hidden_layers, config.hidden_size)
        self.unused = None  # ids without a token, which are never chosen
        self.active = None  # the name of the adapter that takes part; None is not known
        self.tokens = {}  # by the name of an adapter, if it trains rows of tokens
        self.module.embed_tokens.register_forward_hook(self.embedded)
        for layer in self.module.layers:
            layer.register_forward_hook(self.passed)

    def passed(self, module, inputs, output):
        """Says that a layer is done, and has the backward pass say so."""
        self.tick()
        hidden = output[0] if isinstance(output, tuple) else output
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: self.tick())

    def embedded(self, module, inputs, output):
        """Puts the rows of tokens that the adapter trains in the place of the base's."""
        own = self.tokens.get(self.active)
        return output if own is None else own.embed(inputs[0], output)

    def load(self, tensors):
        if HEAD in tensors:
            with self.ranks.module(self.device):
                self.module.register_parameter(OUTPUT, torch.nn.Parameter(torch.empty(tensors[HEAD].shape, dtype=self.dtype)))
        self.ranks.spread(self.module, self.module.layers, self.device, self.products, self.offload)
        own = {HEAD if name == OUTPUT else PREFIX + name: p for name, p in self.module.named_parameters()}
        if own.keys() != tensors.keys():
            odd = sorted(own.keys() ^ tensors.keys())
            raise Refused(f"the weights and {self.config.model_type} of transformers differ in tensors: {', '.join(odd[:4])}")
        with torch.no_grad():
            for name, p in own.items():
                if p.shape != tensors[name].shape:
                    raise Refused(f"tensor {name} has shape {list(tensors[name].shape)}, the model wants {list(p.shape)}")
                self.ranks.own(p).copy_(self.ranks.rows(tensors[name], p))
                self.tick()
        return own

    def freeze(self):
        self.module.requires_grad_(False)

    def output(self):
        """The weights of the output layer, [vocabulary, hidden]."""
        head = getattr(self.module, OUTPUT)
        return self.module.embed_tokens.weight if head is None else head

    def adapt(self, name, lora, tensors):
        """Adds an adapter and gives its parameters by the names of files, [rank, in] and [out, rank]."""
        shape = LoraConfig(
            r=lora["rank"], lora_alpha=lora["alpha"], target_modules=list(lora["targets"]), lora_dropout=0.0, bias="none"
        )
        self.active = None
        inject_adapter_in_model(shape, self.module, adapter_name=name)
        own = {}
        for module_name, module in self.module.named_modules():
            if not isinstance(module, BaseTunerLayer) or name not in module.lora_A:
                continue
            for part, layer in (("lora_A", module.lora_A[name]), ("lora_B", module.lora_B[name])):
                key = f"{PREFIX}{module_name}.{part}.weight"
                if key not in tensors or tensors[key].shape != layer.weight.shape:
                    raise Refused(f"tensor {key} is absent or has another shape than {list(layer.weight.shape)}")
                layer.weight.data = tensors[key].to(self.device, torch.float32, copy=True)
                own[key] = layer.weight
        if lora.get("trainable_tokens"):
            own |= self.train_tokens(name, lora["trainable_tokens"], tensors)
        return own

    def train_tokens(self, name, ids, tensors):
        """Gives the parameters of the rows of tokens. A critic has none in the output layer."""
        own = {
            key: torch.nn.Parameter(tensors[key].to(self.device, torch.float32, copy=True))
            for key in (INPUT_ROWS, OUTPUT_ROWS) if key in tensors
        }
        if INPUT_ROWS not in own:
            raise Refused(f"tensor {INPUT_ROWS} is absent")
        self.tokens[name] = Tokens(ids, self.config.vocab_size, own[INPUT_ROWS], own.get(OUTPUT_ROWS, own[INPUT_ROWS]))
        return own

    def activate(self, name):
        """Has the adapter of that name, and no other, take part in what is computed and trained."""
        if self.active == name:  # walking all modules takes longer than a token of a small model
            return
        for module in self.module.modules():
            if isinstance(module, BaseTunerLayer):
                module.set_adapter([name])
        self.active = name

    def remove(self, name):
        self.active = None
        self.tokens.pop(name, None)
        for module in self.module.modules():
            if isinstance(module, BaseTunerLayer) and name in module.lora_A:
                module.delete_adapter(name)

    def hidden(self, tokens, train):
        """The last hidden states [B, S, D] of tokens [B, S]. Padding comes last, so that causal attention never sees it."""
        recompute = train and tokens.numel() > self.room
        if recompute and not self.module.is_gradient_checkpointing:
            self.module.gradient_checkpointing_enable({"use_reentrant": False})
        self.module.train(recompute)  # nothing is dropped: this decides alone whether layers are computed again
        return self.module(input_ids=tokens, use_cache=False).last_hidden_state

    def extend(self, tokens, positions, mask, cache):
        """The last hidden states of tokens [B, S] at positions [B, S] that see what mask [B, 1, S, T] allows of a cache's."""
        self.module.train(False)
        return self.module(
            input_ids=tokens, position_ids=positions, attention_mask=mask, past_key_values=cache, use_cache=True
        ).last_hidden_state

    def choices(self, hidden, target, scale, bits, mask, dtype):
        """Log-probabilities and entropies of the choices of target, each [n], that hidden states [n, D] lead to."""
        own, ids = self.own()
        return Choices.apply(hidden, self.output(), own, target, scale, bits, mask, dtype, self.unused, ids)

    def choosing(self, hidden, scale, bits, mask, dtype):
        """The scaled logits that tokens are chosen by, in parts of positions."""
        weight, (own, ids) = self.output(), self.own()
        for part in parts(hidden, weight.shape[0]):
            yield part, logits(hidden[part], weight, scale[part], bits, mask[part], dtype, self.unused, own, ids)

    def own(self):
        """The rows of the output layer that the adapter trains, and the ids of their tokens, or None and None."""
        own = self.tokens.get(self.active)
        return (None, None) if own is None else (own.outputs, own.ids)
