"""The Byzantine attacks, by kind."""

from simfl.robust.attacks.alie import ALittleIsEnough
from simfl.robust.attacks.dissensus import Dissensus
from simfl.robust.attacks.gaussian import GaussianModel
from simfl.robust.attacks.ipm import InnerProductManipulation
from simfl.robust.attacks.mimic import Mimic
from simfl.robust.attacks.sign_flip import SignFlip
from simfl.robust.base import AbstractAttack

ATTACKS: dict[str, type[AbstractAttack]] = {
    attack.kind: attack
    for attack in (SignFlip, InnerProductManipulation, ALittleIsEnough, GaussianModel, Mimic, Dissensus)
}
