"""PyG's training loop over a set of graphs, which `folds` and `sets` share. It uses Adam, validates after the batches of each epoch, and
tests the epoch that validates best, or the first of equal ones."""

import torch
from torch.nn import functional as F
from torch_geometric.loader import DataLoader

import tests  # noqa: F401  the Python package's modules are found by it
from permafrost import models


def cross_entropy(out, y):
    return F.cross_entropy(out, y.view(-1).long())


def of_known(loss):
    """Makes a loss that leaves out missing targets, which are NaN."""

    def of_batch(out, y):
        known = ~y.isnan()
        return loss(out[known], y[known])

    return of_batch


def accuracy(out, y):
    return float((out.argmax(1) == y.view(-1)).double().mean())


def roc_auc(out, y):
    """Returns the mean of the ROC-AUC over the targets that have both classes, as OGB's evaluator does. An equal score counts half."""
    found = []
    for scores, wanted in zip(out.double().T, y.T):
        links, others = scores[wanted == 1], scores[wanted == 0].sort().values
        if len(links) and len(others):
            below, up_to = torch.searchsorted(others, links), torch.searchsorted(others, links, right=True)
            found.append(float((below + up_to).double().mean() / 2 / len(others)))
    if not found:
        raise SystemExit("peer_training: no target of the split has both classes, so that there is no ROC-AUC")
    return sum(found) / len(found)


def mean_absolute_error(out, y):
    known = ~y.isnan()
    return float((out[known] - y[known]).abs().double().mean())


# Maps each loss to its function, the function of its metric, and whether a higher metric is better. The metric is the server's default for
# the loss.
LOSSES = {
    "cross-entropy": (cross_entropy, accuracy, True),
    "bce": (of_known(F.binary_cross_entropy_with_logits), roc_auc, True),
    "l1": (of_known(F.l1_loss), mean_absolute_error, False),
    "mse": (of_known(F.mse_loss), mean_absolute_error, False),
}


def outputs(module, batch):
    return module(batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs)


@torch.no_grad()
def measured(module, loader, metric):
    module.eval()
    made = [(outputs(module, batch), batch.y) for batch in loader]
    module.train()
    return metric(*(torch.cat(part) for part in zip(*made)))


def train(settings, parts, seed):
    """Returns the metric of the validation and the test split in the best epoch. settings: weights (a file that describes the model), loss,
    epochs, lr, batch_size. parts: the graphs as Data by "train", "valid", "test"; `y` is [1, targets], or a class."""
    loss, metric, more_is_better = LOSSES[settings["loss"]]
    torch.manual_seed(seed)
    module = models.load(settings["weights"])
    models.reset_parameters(module)
    optimizer = torch.optim.Adam(module.parameters(), lr=settings["lr"])
    loaders = {name: DataLoader(graphs, batch_size=settings["batch_size"], shuffle=name == "train") for name, graphs in parts.items()}
    best = None
    for _ in range(settings["epochs"]):
        for batch in loaders["train"]:
            optimizer.zero_grad()
            loss(outputs(module, batch), batch.y).backward()
            optimizer.step()
        valid = measured(module, loaders["valid"], metric)
        if best is None or (valid > best[0] if more_is_better else valid < best[0]):
            best = valid, measured(module, loaders["test"], metric)
    return best
