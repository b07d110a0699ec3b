r"""An answer has to be evaluated already: pairs of a right answer and what a response says."""

import pytest

pytest.importorskip("math_verify")
from tests.rewards.math.test_text import cases
from verl_msgrpo.rewards.math.equal import equal_answers

THE_PROBLEM_AGAIN = r"""
    (0,1) ; x^2-x<0
    (-1,1) ; x^2<1
    (1,3) ; |x-2|<1
    (-\infty,3) ; 2x+1<7
    x<3 ; 2x+1<7
    x=3 ; 2x=6
    x=3 ; x^3=27
    \{1,3\} ; x^2-4x+3=0
    (-\infty,0)\cup(1,\infty) ; x<0 \text{ or } x^2>x
    [1,2] ; [0,2]\cap[1,3]
    5050 ; \sum_{i=1}^{100} i
    5050 ; ∑_{i=1}^{100} i
    5050 ; \frac{100\cdot 101}{2}
    5050 ; 1+2+3+\ldots+100
    120 ; \prod_{i=1}^{5} i
    \frac13 ; \int_0^1 x^2dx
    \frac13 ; \int\limits_0^1 x^2\,dx
    1 ; \lim_{x\to 0}\frac{\sin x}{x}
    401 ; 7^{2024} \mod 1000
    401 ; 7^{2024} \bmod 1000
    401 ; 7^{2024} \text{ mod } 1000
    3 ; \lfloor 3.7 \rfloor
    3 ; ⌊3.7⌋
    4 ; \lceil 3.2 \rceil
    -2 ; \det\begin{pmatrix}1&2\\3&4\end{pmatrix}
    -2 ; \begin{vmatrix}1&2\\3&4\end{vmatrix}
    6 ; \gcd(12,18)
    6 ; gcd(12,18)
    12 ; \operatorname{lcm}(4,6)
    5 ; \max(3,5)
    3 ; \log_2 8
    \frac12 ; \sin\frac{\pi}{6}
    \frac{1}{2} ; cos(pi/3)
    \frac{\pi}{4} ; \arctan 1
    5 ; |-5|
    -1 ; e^{i\pi}
    5 ; \sqrt{3^2+4^2}
    1 ; \frac{x+1}{x+1}
    2x ; \frac{d}{dx}x^2
    \frac{n(n+1)}{2} ; \sum_{k=1}^n k
    \begin{pmatrix}5\end{pmatrix} ; \begin{pmatrix}1&2\end{pmatrix}\begin{pmatrix}1\\2\end{pmatrix}
    \begin{pmatrix}1&2\\0&1\end{pmatrix} ; \begin{pmatrix}1&1\\0&1\end{pmatrix}^2
"""


@pytest.mark.parametrize(("right", "said"), cases(THE_PROBLEM_AGAIN))
def test_what_is_left_to_be_done_is_not_an_answer(right, said):
    assert not equal_answers(right, said)


ANSWERS = r"""
    2\sqrt{3} ; \sqrt{12}
    1024 ; 2^{10}
    10 ; \binom{5}{2}
    6 ; 3!
    1/3 ; 2/6
    10 ; 9+1
    1000001 ; 10^6+1
    1500 ; 1.5\times 10^{3}
    5 ; S=5
    5 ; S=\sum_{i=1}^{2} i+2=5
    7 ; x^2+\frac{1}{x^2}=7
    204 ; m+n=204
    x=11 ; x=5+6=11
    401 ; 401 \mod 1000
    (0,1) ; 0<x<1
    (-\infty,3) ; x<3
    x<1 ; -x>-1
    (-\infty,3) ; 3>x
    (0,1) ; x\in(0,1)
    y=2x+1 ; 2x-y+1=0
    (2,3) ; (x,y)=(2,3)
    (x+1)^2 ; x^2+2x+1
    \sum_{k=1}^{n} k^3 ; \sum_{k=1}^{n} k^{3}
    \log_2 3 ; \frac{\ln 3}{\ln 2}
    2\sin x\cos x ; \sin 2x
    \lfloor n/2\rfloor ; \lfloor \frac{n}{2}\rfloor
    e^2 ; e^{2}
    \pi ; 3.14159265\ldots
    \begin{pmatrix}\frac12\\1\end{pmatrix} ; \frac12\begin{pmatrix}1\\2\end{pmatrix}
    f(x)=x,f(x)=-x ; f(x)=-x, f(x)=x
"""


@pytest.mark.parametrize(("right", "said"), cases(ANSWERS))
def test_what_people_leave_standing_is_right(right, said):
    assert equal_answers(right, said)
