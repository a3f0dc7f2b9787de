// All-reduce of f32 sums over MPI, as OSU's osu_allreduce measures it, but back to back and with each operation's
// time on the rank that took longest: what `lacuna collective bench` prints.
//
//   all_reduce BYTES:WARMUP:COUNT ...
//
// Rank 0 prints a line for each size: its bytes, and the time of each operation in microseconds.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int measure(int rank, int ranks, long bytes, long warmup, long count) {
    long elements = bytes / (long)sizeof(float);
    float *input = malloc((size_t)bytes), *output = malloc((size_t)bytes);
    double *times_us = calloc((size_t)count, sizeof *times_us), *slowest_us = calloc((size_t)count, sizeof *slowest_us);
    if (!input || !output || !times_us || !slowest_us) return 1;
    for (long i = 0; i < elements; i++) input[i] = (float)(1 + (rank + i) % 3), output[i] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (long i = -warmup; i < count; i++) {
        double begin_s = MPI_Wtime();
        MPI_Allreduce(input, output, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (i >= 0) times_us[i] = (MPI_Wtime() - begin_s) * 1e6;
    }
    int wrong = 0;
    for (long i = 0; i < elements && !wrong; i++) {
        float expected = 0;
        for (int other = 0; other < ranks; other++) expected += (float)(1 + (other + i) % 3);
        wrong = output[i] != expected;
    }
    MPI_Reduce(times_us, slowest_us, (int)count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%ld", bytes);
        for (long i = 0; i < count; i++) printf(" %.3f", slowest_us[i]);
        printf("\n");
    }
    free(input), free(output), free(times_us), free(slowest_us);
    return wrong;
}

int main(int argc, char **argv) {
    int rank, ranks, failed = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < argc && !failed; i++) {
        long bytes, warmup, count;
        if (sscanf(argv[i], "%ld:%ld:%ld", &bytes, &warmup, &count) != 3) {
            fprintf(stderr, "%s is not BYTES:WARMUP:COUNT\n", argv[i]);
            failed = 2;
        } else if (measure(rank, ranks, bytes, warmup, count)) {
            fprintf(stderr, "rank %d: no memory, or a wrong sum\n", rank);
            failed = 4;
        }
    }
    if (failed) MPI_Abort(MPI_COMM_WORLD, failed);
    MPI_Finalize();
    return 0;
}
