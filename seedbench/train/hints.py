"""Settings of the pages whose actor or whose re-scoring teacher sees a hint: Skill-GRPO, SEED, its relatives, SSPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from seedbench.core import SeedbenchError
from seedbench.train.args import Args

Skills = Literal["own", "static", "shuffled", "rules", "none"]
Method = Literal["opsd", "grpo_opsd", "sdar", "skill_sd", "rlsd"]


@dataclass(frozen=True)
class SkillGrpoArgs(Args):
    """Settings of one run of Skill-GRPO."""

    page: ClassVar[str] = "skill_grpo"

    skill: str = "static"
    """What the actor sees at every step. static: the bank's text for the task's kind (SDAR's code). hindsight: the
    policy's own last lesson on that kind, from earlier updates (ours). FILE: that text. none: nothing, as in GRPO."""
    analysis_tokens: int = 128
    """Longest lesson that the policy writes for --skill hindsight. SEED's paper: 4096."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self.analysis_tokens, 1, "analysis-tokens")

    @property
    def reads(self) -> dict[str, str]:
        """As Args.reads."""
        return {} if self.skill in ("static", "hindsight", "none") else {"skill": self.skill}


@dataclass(frozen=True)
class HindsightArgs(Args):
    """What every page with a re-scoring teacher has in common."""

    skills: Skills = "own"
    """What the teacher sees beyond the actor. own: the present weights' lesson on that very episode (SEED's paper).
    static: the bank's text for the task's kind (the paper's ablation without on-policy skills). shuffled: the own
    lesson of an episode of another task (ours, a control). rules: the environment's rule-based lesson (ours). none: no
    teacher (the paper's ablation without OPD)."""
    analysis_tokens: int = 128
    """Longest lesson that the policy writes. Paper: 4096."""
    failed_only: bool = False
    """Teach failed episodes only (an option of the code; off in the paper)."""
    opd_start: int = 0
    """Updates before teaching starts (an option of the code; off in the paper)."""
    opd_stop: int | None = None
    """Update before which it stops again (an option of the code; off in the paper)."""
    share_every: int = 0
    """Measure every so many updates how large the gradient of the teacher's term, with its weight, is beside the rest's
    (part_share in the log); a second backward pass each time (ours). 0: never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self.analysis_tokens, 1, "analysis-tokens")
        _at_least(self.opd_start, 0, "opd-start")
        _at_least(self.share_every, 0, "share-every")
        if 0 < self.updates <= self.opd_start:
            raise SeedbenchError(
                f"--opd-start is {self.opd_start} and --updates {self.updates}: the teacher would never speak; that is "
                "--skills none."
            )
        if self.opd_stop is not None:
            _at_least(self.opd_stop, 0, "opd-stop")
            if self.opd_stop <= self.opd_start:
                raise SeedbenchError(
                    f"--opd-stop {self.opd_stop} is not after --opd-start {self.opd_start}: the teacher would never "
                    "speak; that is --skills none."
                )

    def scheduled(self, update: int) -> bool:
        """Whether the teacher speaks at this update, counted from 0."""
        return self.opd_start <= update and (self.opd_stop is None or update < self.opd_stop)

    def shares(self, update: int) -> bool:
        """As Args.shares."""
        return bool(self.share_every) and update % self.share_every == 0


@dataclass(frozen=True)
class SeedArgs(HindsightArgs):
    """Settings of one run of SEED's second stage."""

    page: ClassVar[str] = "seed"

    lambda_opd: float = 0.01
    """Weight of the distillation term (paper: 0.01); 0 is GRPO, to the bit, with everything still measured."""
    beta_opd: float = 5.0
    """Slope of the gate sigmoid(beta * gap) (paper: 5)."""
    gate: Literal["learned", "fixed"] = "learned"
    """learned: the paper's. fixed: 0.5 for every token (ours, a control: plain self-imitation is left)."""

    @property
    def teaches(self) -> bool:
        """As Args.teaches."""
        return self.lambda_opd > 0


@dataclass(frozen=True)
class SspoArgs(Args):
    """Settings of one run of SSPO."""

    page: ClassVar[str] = "sspo"

    privileged: Literal["both", "anchors", "answer", "none"] = "both"
    """What the teacher is told beyond the prompt: evidence anchors and the episode's own wrong answer (the paper), one
    of them (its ablations), or nothing."""
    anchors: str = ""
    """File of anchors, as `seedbench anchors build` writes it; by default the environment's own evidence."""
    teacher_updates: int = 50
    """Updates between copies of the policy that become the teacher (paper: 50); 1: the batch's own weights."""
    cap: float = 0.2
    """A weight is at most 1 + cap (paper: epsilon 0.2, which is not --clip)."""
    floor: float = 0.0
    """A weight is at least this (paper: 0, no bound; RLSD's would be 0.8)."""
    granularity: Literal["step", "token"] = "step"
    """step: one weight for all tokens of a step, from their joint likelihoods (the paper). token: each its own (the
    paper's ablation)."""
    length_norm: Literal["none", "mean_token"] = "none"
    """none: a step's log-likelihood ratio is a sum over its tokens (the paper names no other). mean_token: divided by
    their number (ours)."""
    direct: bool = False
    """Distil instead (OPSD, the paper's ablation, as we read it): every token of every episode has its log-likelihood
    ratio for an advantage, and the reward none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self.teacher_updates, 1, "teacher-updates")
        if self.floor > 1:
            raise SeedbenchError(f"--floor is {self.floor}: a weight's lower bound is 1 at most.")

    @property
    def reads(self) -> dict[str, str]:
        """As Args.reads."""
        return {"anchors": self.anchors} if self.anchors else {}

    @property
    def teacher_sync(self) -> int:
        """As Args.teacher_sync."""
        return self.teacher_updates

    def hears(self, advantage: float) -> bool:
        """As Args.hears: a weight on an advantage of 0 is none."""
        return self.direct or advantage != 0

    @property
    def unmeasured(self) -> dict[str, float]:
        """As Args.unmeasured."""
        return {} if self.direct else {"weight_mean": 1.0, "weight_capped": 0.0}

    @property
    def teaches(self) -> bool:
        """As Args.teaches."""
        return self.direct


@dataclass(frozen=True)
class RelativesArgs(HindsightArgs):
    """Settings of one run of a relative of SEED."""

    page: ClassVar[str] = "relatives"

    method: Method = "sdar"
    """opsd, grpo_opsd, sdar, skill_sd or rlsd: see baselines/relatives.py."""
    skills: Skills = "static"
    """As in SEED; their papers show the teacher static skills."""
    weight: float | None = None
    """Weight of the method's own term; by default its code's: 0.01, Skill-SD 0.001, RLSD 0.5 falling to 0."""
    beta_opd: float = 5.0
    """Slope of the gate of OPSD and SDAR (their code: 5)."""

    @property
    def own_weight(self) -> float:
        """`weight`, or the method's default."""
        default = {"skill_sd": 0.001, "rlsd": 0.5}.get(self.method, 0.01)
        return default if self.weight is None else self.weight

    @property
    def teaches(self) -> bool:
        """As Args.teaches: RLSD scales advantages, and one of 0 stays so."""
        return self.method != "rlsd" and self.own_weight > 0


def _at_least(value: int, low: int, flag: str) -> None:
    if value < low:
        raise SeedbenchError(f"--{flag} is {value}: it must be {low} or more.")
