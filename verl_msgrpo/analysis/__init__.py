"""The theory of MS-GRPO as functions, and a comparison of methods on small problems.

The theory, in this order:

    rescaling     c of binary rewards, and f of those not divided by the std
    taylor        the advantage expanded around the group's std (our derivation), for any G;
                  how much the variance of subgroups varies
    errors        advantages as estimates: bias and mean squared error, closed, exact and drawn;
                  what M scales and K subgroups per scale leave out

The comparison, softmax policies trained with each method at its own best learning rate:

    bandits       the problems, and what a policy achieved on them
    training      the methods, the training, and the learning rates
    comparison    one problem with all methods; a table of several

Needs torch and numpy only. The figures are drawn by examples/analysis.
"""
