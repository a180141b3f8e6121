"""Many questions at once, for callers that do not await: rewards, calibration, benchmarks."""

import asyncio
from collections.abc import Sequence

from groupwise.inference import ReportProgress, run_on_shared_loop
from groupwise.judges.judge import Judge, NoVerdict, Question, Verdict


def judge_all(
    judge: Judge, questions: Sequence[Question], *, report_progress: ReportProgress | None = None
) -> list[Verdict | NoVerdict]:
    """Put all questions to the judge at once and return the verdicts in order.

    How many are really asked at once is the judge's own limit.

    Raises:
        JudgeError: as the judge does; the questions that are still open are given up.
    """
    return run_on_shared_loop(_judge_all(judge, questions, report_progress))


async def _judge_all(
    judge: Judge, questions: Sequence[Question], report_progress: ReportProgress | None
) -> list[Verdict | NoVerdict]:
    num_done = 0

    async def decide(question: Question) -> Verdict | NoVerdict:
        nonlocal num_done
        verdict = await judge.judge(question)
        num_done += 1
        if report_progress is not None:
            report_progress(num_done, len(questions))
        return verdict

    tasks = [asyncio.ensure_future(decide(question)) for question in questions]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
