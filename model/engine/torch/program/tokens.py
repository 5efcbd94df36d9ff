"""Rows of some tokens, which an adapter trains in place of those of its frozen base."""

import torch

INPUT_ROWS = "model.embed_tokens.token_adapter.trainable_tokens_delta"  # their names in files
OUTPUT_ROWS = "lm_head.token_adapter.trainable_tokens_delta"


class Tokens:
    """The rows, [T, D], of the tokens ids in the embedding and in the output layer, which are the same parameter where
    embeddings are tied."""

    def __init__(self, ids, vocabulary, inputs, outputs):
        device = inputs.device
        self.ids, self.inputs, self.outputs = torch.tensor(ids, device=device), inputs, outputs
        self.place = torch.full((vocabulary,), -1, device=device)  # of each token among ids
        self.place[self.ids] = torch.arange(len(ids), device=device)

    def embed(self, tokens, embedded):
        """What the embedding returns for tokens, with the rows of ours."""
        place = self.place[tokens]
        own = torch.nn.functional.embedding(place.clamp(min=0), self.inputs).to(embedded.dtype)
        return torch.where((place >= 0)[..., None], own, embedded)
