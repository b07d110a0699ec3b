"""The theory of MS-GRPO as functions, and a comparison of methods on small problems.

    rescaling        c of binary rewards, and f of those not divided by the std
    heterogeneity    how much the variance of subgroups varies
    taylor           the advantage expanded around the group's std (our derivation), for any G
    undivided_errors, discrete_errors, sampled_errors
                     bias and mean squared error of advantages as estimates: closed, exact, drawn
    design_errors    what M scales and K subgroups per scale leave out
    bandits, training, comparison, summary
                     softmax policies trained with each method at its own best learning rate

Needs torch and numpy only. The figures are drawn by examples/analysis.
"""
