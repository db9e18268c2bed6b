"""From logits to text: sampling, detokenizing, stopping."""
