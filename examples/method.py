"""A method: the gradient from wherever P(class) is 1/2, on the way from black to the image.

scs-eval saliency --model rohrer100k_scs --method halfway --plugin examples/method.py
"""

import torch

import scs_eval


@scs_eval.register_method("halfway", source="an example", passes=10, quantity="sensitivity", needs=("gradient",))
def halfway(model, images, targets):
    """The gradient at the α·x where P(class) is nearest to 1/2."""
    alphas = torch.linspace(0.1, 1, 9).to(images)
    with torch.no_grad():
        chances = torch.stack([model(a * images).softmax(1).gather(1, targets[:, None])[:, 0] for a in alphas])
    start = alphas[(chances - 0.5).abs().argmin(0)].view(-1, 1, 1, 1) * images
    start.requires_grad_()
    (slope,) = torch.autograd.grad(model(start).gather(1, targets[:, None]).sum(), start)
    return slope
