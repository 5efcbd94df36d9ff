"""Log-probabilities and entropies of the choices of tokens, without all their logits at once."""

import torch

MOST_LOGITS = 1 << 25  # at a time
NONE = -1e9  # a log-probability whose product with its probability, 0, is 0, as that of -inf is not


class Choices(torch.autograd.Function):
    """For n positions: log p(target) and the entropy, in nats, of the soft-max of scale·(hidden · weightᵀ) over the
    tokens that its mask allows.

    hidden is [n, D], weight [V, D], target and scale [n]. own is [T, D], rows that replace those of the tokens ids, [T],
    of a frozen weight; both are None without any. bits is [M, bytes]: masks, bit k of byte j for token 8j+k.
    mask is [n], the number of a position's mask, or -1 where all tokens are allowed. unused is [U], ids without a token,
    which are never allowed, or None.

    With z the scaled logits, p their soft-max and H its entropy, the derivatives are
    ∂ log p(t)/∂z_v = [v = t] − p_v and ∂H/∂z_v = −p_v (log p_v + H). Memory passes over logits are what this costs
    beside its products, so that it makes few of them; an entropy without a gradient costs none in the backward pass.
    """

    @staticmethod
    def forward(ctx, hidden, weight, own, target, scale, bits, mask, dtype, unused, ids):
        ctx.set_materialize_grads(False)
        logprobs, entropies = [], []
        for part in parts(hidden, weight.shape[0]):
            log = logs(hidden[part], weight, scale[part], bits, mask[part], dtype, unused, own, ids)
            logprobs.append(taken(log, target[part]))
            entropies.append(entropy(log))
        logprobs, entropies = torch.cat(logprobs), torch.cat(entropies)
        ctx.save_for_backward(hidden, weight, own, target, scale, bits, mask, entropies)
        ctx.dtype, ctx.unused, ctx.ids = dtype, unused, ids
        return logprobs, entropies

    @staticmethod
    def backward(ctx, by_logprob, by_entropy):
        hidden, weight, own, target, scale, bits, mask, entropies = ctx.saved_tensors
        by_hidden = torch.empty_like(hidden)
        by_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        by_own = None if own is None else torch.zeros_like(own, dtype=torch.float32)
        cast = weight.to(ctx.dtype)
        for part in parts(hidden, weight.shape[0]):
            log = logs(hidden[part], weight, scale[part], bits, mask[part], ctx.dtype, ctx.unused, own, ctx.ids)
            by_target = scale[part, None] * by_logprob[part, None]
            if by_entropy is None:
                g = log.exp_().mul_(-by_target)
            else:
                by = scale[part, None] * by_entropy[part, None]
                g = log.exp().mul_(log.mul_(-by).sub_(by * entropies[part, None] + by_target))
            g = g.scatter_add_(-1, target[part, None], by_target).to(ctx.dtype)
            if own is not None:  # nothing of it reaches the rows of weight
                of_own = g[:, ctx.ids]
                g.index_fill_(-1, ctx.ids, 0)
                by_own += (of_own.T @ hidden[part].to(ctx.dtype)).float()
            by_hidden[part] = (g @ cast).to(hidden.dtype)
            if own is not None:
                by_hidden[part] += (of_own @ own.to(ctx.dtype)).to(hidden.dtype)
            if by_weight is not None:
                by_weight += (g.T @ hidden[part].to(ctx.dtype)).float()
        return by_hidden, by_weight, by_own, None, None, None, None, None, None, None


def parts(hidden, vocabulary):
    """Slices of positions, so that at most MOST_LOGITS logits exist at a time."""
    n = max(1, MOST_LOGITS // vocabulary)
    return [slice(at, at + n) for at in range(0, hidden.shape[0], n)]


def logits(hidden, weight, scale, bits, mask, dtype, unused, own=None, ids=None):
    z = hidden.to(dtype) @ weight.to(dtype).T
    if own is not None:
        z.index_copy_(-1, ids, hidden.to(dtype) @ own.to(dtype).T)
    return masked(z.float().mul_(scale[:, None]), bits, mask, unused)


def logs(hidden, weight, scale, bits, mask, dtype, unused, own, ids):
    """Log-probabilities [n, V] of all tokens; NONE for those that are not allowed."""
    log = torch.log_softmax(logits(hidden, weight, scale, bits, mask, dtype, unused, own, ids), -1)
    return log if bits.shape[0] == 0 and unused is None else log.clamp_(min=NONE)


def taken(log, target):
    """The log-probability of each target, which is -inf if its mask does not allow it."""
    log = log.gather(-1, target[:, None])[:, 0]
    return log.masked_fill(log == NONE, float("-inf"))


def entropy(log):
    return -torch.linalg.vecdot(log.exp(), log)


def ids(ranges, device):
    """The ids of ranges, each written as its first and its last id, or None without any."""
    pairs = zip(ranges[::2], ranges[1::2])
    parts = [torch.arange(first, last + 1, device=device) for first, last in pairs]
    return torch.cat(parts) if parts else None


def masked(z, bits, mask, unused):
    """Scaled logits [n, V] that are -inf for unused ids and for tokens that the masks of their positions don't allow."""
    if unused is not None:
        z.index_fill_(-1, unused, float("-inf"))
    if bits.shape[0] == 0:
        return z
    shifts = torch.arange(8, device=bits.device, dtype=torch.uint8)
    allowed = (bits[mask.clamp(min=0)][:, :, None] >> shifts & 1).flatten(1)[:, : z.shape[1]].bool()
    return z.masked_fill((mask >= 0)[:, None] & ~allowed, float("-inf"))
