#!/bin/bash
# A training run on the nodes of a SLURM job: a Ray cluster that begins and ends with the job.
#
#     sbatch examples/cluster/slurm.sh qwen_textcraft training.shards=8 cluster.engines=8 cluster.shared=false
#
# SHARED is a folder that all nodes see: the run, its checkpoints and its engines' logs are there.
# The same command with RUN=<name of the run> continues it after the job has ended.
#SBATCH --job-name=agentgym
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --time=24:00:00
set -euo pipefail

SHARED=${SHARED:-$SLURM_SUBMIT_DIR}
RUN=${RUN:-slurm-$SLURM_JOB_ID}
PORT=${PORT:-6379}
LOOKS=${LOOKS:-60}

# Only processes of this job join the cluster, and a dead node is noticed after a second.
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
export RAY_health_check_initial_delay_ms=2000
export RAY_health_check_period_ms=300
export RAY_health_check_failure_threshold=3

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p) # reads all: no broken pipe
on_head=(srun --overlap --nodes=1 --ntasks=1 --nodelist="$head")
ip=$("${on_head[@]}" hostname --ip-address | awk '{print $1}')

"${on_head[@]}" ray start --head --node-ip-address="$ip" --port="$PORT" \
    --include-dashboard=false --disable-usage-stats --block &
if (( SLURM_JOB_NUM_NODES > 1 )); then
    others=$(( SLURM_JOB_NUM_NODES - 1 ))
    srun --overlap --nodes="$others" --ntasks="$others" --exclude="$head" \
        ray start --address="$ip:$PORT" --disable-usage-stats --block &
fi

# Wait until all nodes are there, see the folder and reach each other.
for (( look = 1; ; look++ )); do
    report=$("${on_head[@]}" agentgym doctor --cluster --address "$ip:$PORT" \
        --shared-folder "$SHARED" 2>&1) && [[ $report == *"$SLURM_JOB_NUM_NODES nodes, all with"* ]] && break
    if (( look >= LOOKS )); then
        echo "$report"
        exit 1
    fi
    sleep 5
done
echo "$report"

run=$SHARED/runs/$RUN
where=(cluster.address="$ip:$PORT" cluster.shared_folder="$SHARED")
if [[ -f $run/run.json ]]; then
    "${on_head[@]}" agentgym train --run-dir "$run" --resume "${where[@]}"
else
    "${on_head[@]}" agentgym train "$@" cluster.type=ray "${where[@]}" --run-dir "$run"
fi
