"""Megatron's transformer layer in plain torch, as Transformer Engine would lay it out.

The parameters have the names that megatron-bridge converts: the RMS norm before a linear layer
belongs to that layer (`linear_qkv.layer_norm_weight`).
"""

import torch
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from torch.nn.functional import rms_norm, scaled_dot_product_attention


class LocalRMSNorm(torch.nn.RMSNorm):
    """The norm after the last layer; unlike Megatron's of torch, for sequence parallelism too."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float) -> None:
        super().__init__(hidden_size, eps=eps, dtype=config.params_dtype)
        # Under sequence parallelism each rank sees a part of the sequence only; Megatron then sums.
        setattr(self.weight, "sequence_parallel", config.sequence_parallel)


class LocalLayerNormColumnParallelLinear(ColumnParallelLinear):
    """RMS norm and a linear layer that is split by its output."""

    def __init__(
        self, input_size: int, output_size: int, *, config: TransformerConfig, **kwargs: object
    ) -> None:
        super().__init__(input_size, output_size, config=config, **kwargs)
        weight = torch.ones(input_size, dtype=config.params_dtype)
        self.layer_norm_weight = torch.nn.Parameter(weight)
        setattr(self.layer_norm_weight, "sequence_parallel", config.sequence_parallel)
        self.layer_norm_epsilon = config.layernorm_epsilon

    def forward(self, x: torch.Tensor, *args: object, **kwargs: object) -> object:
        """x: (s, b, h)."""
        x = rms_norm(x, x.shape[-1:], self.layer_norm_weight, self.layer_norm_epsilon)
        return super().forward(x, *args, **kwargs)


class LocalAttention(torch.nn.Module):
    """Causal attention over rows padded on the right, or over packed sequences ("thd")."""

    def __init__(self, *_: object, softmax_scale: float | None = None, **__: object) -> None:
        super().__init__()
        self.softmax_scale = softmax_scale

    def _attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """(s, b, heads, d) each; returns (s, b, heads * d)."""
        query, key, value = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        out = scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=self.softmax_scale, enable_gqa=True
        )
        return out.permute(2, 0, 1, 3).flatten(2)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *,
        packed_seq_params: PackedSeqParams | None = None,
        **_: object,
    ) -> torch.Tensor:
        """Returns (s, b, heads * d), or (t, heads * d) when packed; (t, heads, d) then came in."""
        if packed_seq_params is None:
            return self._attend(query, key, value)
        ends = packed_seq_params.cu_seqlens_q_padded
        if ends is None:
            ends = packed_seq_params.cu_seqlens_q
        lengths = ends.diff().tolist()
        lengths.append(len(query) - sum(lengths))  # padding of the whole, if any
        sequences = zip(*(x.unsqueeze(1).split(lengths) for x in (query, key, value)), strict=True)
        return torch.cat([self._attend(*sequence) for sequence in sequences]).squeeze(1)


def local_layer_spec(config: TransformerConfig) -> ModuleSpec:
    """The layer of a dense decoder, as `megatron.bridge...transformer_engine_layer_spec` would."""
    attention = SelfAttentionSubmodules(
        linear_qkv=LocalLayerNormColumnParallelLinear,
        core_attention=LocalAttention,
        linear_proj=RowParallelLinear,
        q_layernorm=IdentityOp,
        k_layernorm=IdentityOp,
    )
    mlp = MLPSubmodules(linear_fc1=LocalLayerNormColumnParallelLinear, linear_fc2=RowParallelLinear)
    return ModuleSpec(
        module=TransformerLayer,
        submodules=TransformerLayerSubmodules(
            self_attention=ModuleSpec(
                module=SelfAttention,
                params={"attn_mask_type": AttnMaskType.causal},
                submodules=attention,
            ),
            self_attn_bda=get_bias_dropout_add,
            mlp=ModuleSpec(module=MLP, submodules=mlp),
            mlp_bda=get_bias_dropout_add,
        ),
    )
