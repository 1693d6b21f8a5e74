"""Which files of tests take longest, so that two workers start them first and end together."""

from __future__ import annotations

# Seconds on one core of a desktop CPU, to the next ten; a file that is not named takes less.
SECONDS = {
    "tests/zoo/test_data.py": 60,
    "tests/kernels/test_search.py": 40,
    "tests/converter/test_quantized_export.py": 70,
    "tests/engines/test_engines.py": 70,
    "tests/quantization/test_qat.py": 70,
    "tests/test_documents.py": 60,
    "tests/pruning/test_blocks.py": 60,
    "tests/kernels/test_kernels.py": 150,
    "tests/benchmarks/test_bench.py": 50,
    "tests/training/test_distill.py": 50,
    "tests/attention/test_attention.py": 50,
    "tests/pipeline/test_sweep.py": 40,
    "tests/planner/test_hardware_plan.py": 40,
    "tests/benchmarks/test_recipes.py": 40,
    "tests/quantization/test_sums.py": 40,
    "tests/pipeline/test_notebook.py": 30,
    "tests/benchmarks/test_fuse.py": 30,
    "tests/profiler/test_traces.py": 30,
    "tests/parallel/test_train.py": 30,
    "tests/parallel/test_launch.py": 30,
    "tests/parallel/test_strategies.py": 20,
    "tests/browser/test_workbench_live.py": 100,
    "tests/browser/test_workbench.py": 50,
    "tests/browser/test_fusion_and_attention.py": 50,
    "tests/browser/test_tour.py": 60,
    "tests/browser/test_profile.py": 60,
}
