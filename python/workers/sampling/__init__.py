"""From logits to tokens: what each slot wants of its tokens, and the draw."""
