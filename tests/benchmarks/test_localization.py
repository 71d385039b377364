import localization
import torch
from numpy.testing import assert_allclose

from coverwell.inputs.images import images_of


def test_both_ways_train_the_same_tails_alike(tmp_path):
    """The same batches by seed, features in full precision, and no dropout; Adam makes much of little differences."""
    sizes = localization.Sizes(images=12, predicted=2, turns=1, batch_size=4, size=32)
    train = localization.rectangles(tmp_path / "train", sizes.images)
    setting = localization.Setting(sizes, torch.device("cpu"), None, train, train.first(2), tmp_path)
    trunk = localization.seeded_trunk(setting.recipe())
    features = trunk(torch.cat(list(images_of(setting.train.images).batches(size=32))))
    stack, other = (localization.stack_on(features, setting, 2) for _ in range(2))
    from_images = localization.FromImages(other, setting)
    for team in (stack.learner.team, from_images.team):
        for tail in team.members:
            tail.dropout.p = 0.0
    start = stack.learner.team.members[1].fc.bias.detach().clone()
    torch.manual_seed(1)
    stack.descend(stack.squared_error, epochs=1)
    torch.manual_seed(1)
    from_images.epoch()
    for trained, twin in zip(stack.learner.team.members, from_images.team.members, strict=True):
        for name, value in trained.fc.named_parameters():
            assert_allclose(value.detach(), dict(twin.fc.named_parameters())[name].detach(), atol=1e-5)
    assert ((stack.learner.team.members[1].fc.bias.detach() - start).abs() > 1e-4).all()  # it has moved
