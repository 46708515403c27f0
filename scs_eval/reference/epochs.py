"""For how many epochs the papers trained the networks of the zoo on CIFAR-10."""

from scs_eval.reference.scs_paper import paper_figures

SCS_EPOCHS, SCS_RESNET_EPOCHS, BCOS_EPOCHS = 800, 200, 100  # of CIFAR-10, in the two papers
BCOS_NETWORKS = "resnet20", "resnet32", "resnet44", "resnet56", "bcos_cnn9"


def paper_epochs(name: str) -> int | None:
    """For how many epochs a paper trained this network; None if none did."""
    if name in paper_figures():
        return SCS_RESNET_EPOCHS if name.startswith("resnet18") else SCS_EPOCHS
    return BCOS_EPOCHS if "bcos" in name and name.startswith(BCOS_NETWORKS) else None
