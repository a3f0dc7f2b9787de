/* A sum over ranks with lacuna.h: each rank has a vector, and all get the sum of them. Half
 * of it is waited for while the other half is on its way; then the same in place, with a
 * schedule by name.
 *
 *     all_reduce --ranks 4                 starts four processes on this machine
 *     torchrun --no-python --nnodes 2 --nproc-per-node 1 ... all_reduce
 *
 * Without --ranks it is one rank of several, as MASTER_ADDR, MASTER_PORT, RANK and
 * WORLD_SIZE say.
 */

#define _POSIX_C_SOURCE 200809L

#include <arpa/inet.h>
#include <lacuna.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 64, WAIT_MS = 60000 };

static void check(int result, const char *call)
{
    if (result != LACUNA_OK) {
        fprintf(stderr, "%s: %s\n", call, lacuna_last_error());
        exit(1);
    }
}

/* What a rank has at a place: sums of it are exact. */
static float value(uint32_t rank, size_t at)
{
    return (float)(rank + 1) * (float)(at % 1000);
}

static void expect_sums(const float *sums, size_t count, uint32_t ranks)
{
    size_t at;
    for (at = 0; at < count; at++) {
        float expected = (float)(ranks * (ranks + 1) / 2) * (float)(at % 1000);
        if (sums[at] != expected) {
            fprintf(stderr, "element %zu is %g instead of %g\n", at, sums[at], expected);
            exit(1);
        }
    }
}

/* An operation that ended: says who is to blame if it failed. A program that trains would
 * call lacuna_group_form_again() then, and go on from its last checkpoint. */
static void ended(struct lacuna_group *group, int result)
{
    uint32_t rank = UINT32_MAX;
    if (result == LACUNA_OK)
        return;
    fprintf(stderr, "%s\n", lacuna_last_error());
    if (lacuna_group_failed_rank(group, &rank) == LACUNA_OK && rank != UINT32_MAX)
        fprintf(stderr, "because of rank %u\n", (unsigned)rank);
    exit(1);
}

static void compute(struct lacuna_group *group, size_t count)
{
    struct lacuna_group_operation *halves[2] = {NULL, NULL};
    struct lacuna_group_options options;
    struct lacuna_group_report report;
    uint32_t rank, ranks;
    size_t at, half = count / 2;
    float *mine = (float *)malloc((count + 1) * sizeof(float));
    float *sums = (float *)malloc((count + 1) * sizeof(float));
    int i, result;
    check(lacuna_group_rank(group, &rank), "lacuna_group_rank");
    check(lacuna_group_ranks(group, &ranks), "lacuna_group_ranks");
    if (!mine || !sums)
        exit(1);
    for (at = 0; at < count; at++)
        mine[at] = value(rank, at);

    /* Two operations at once. Until an operation is over, its input must not change. */
    check(lacuna_group_all_reduce(group, mine, sums, half, LACUNA_ELEMENT_F32,
                                  LACUNA_REDUCTION_SUM, NULL, &halves[0]),
          "lacuna_group_all_reduce");
    check(lacuna_group_all_reduce(group, mine + half, sums + half, count - half,
                                  LACUNA_ELEMENT_F32, LACUNA_REDUCTION_SUM, NULL, &halves[1]),
          "lacuna_group_all_reduce");
    for (i = 0; i < 2; i++) {
        /* A program that has something else to do would do it here. */
        while ((result = lacuna_group_operation_wait(halves[i], 100)) == LACUNA_RETRY)
            ;
        ended(group, result);
        check(lacuna_group_operation_report(halves[i], &report), "lacuna_group_operation_report");
        if (rank == 0)
            printf("half %d took %.3f ms; rank %d was waited for longest\n", i,
                   (double)report.took_ns / 1e6, (int)report.straggler_rank);
        check(lacuna_group_operation_free(halves[i]), "lacuna_group_operation_free");
    }
    expect_sums(sums, count, ranks);

    /* In place, and no longer than a minute. */
    memset(&options, 0, sizeof(options));
    options.algorithm = "halving";
    options.budget = LACUNA_BUDGET_WITHIN;
    options.budget_us = (uint64_t)WAIT_MS * 1000;
    check(lacuna_group_all_reduce(group, NULL, mine, count, LACUNA_ELEMENT_F32,
                                  LACUNA_REDUCTION_SUM, &options, NULL),
          "lacuna_group_all_reduce");
    expect_sums(mine, count, ranks);
    check(lacuna_group_barrier(group, NULL, NULL), "lacuna_group_barrier");
    if (rank == 0)
        printf("%u ranks: every sum of %zu floats is right\n", (unsigned)ranks, count);
    free(mine);
    free(sums);
}

/* A port for the meeting of processes on this machine. */
static unsigned free_port(void)
{
    struct sockaddr_in address;
    socklen_t length = sizeof(address);
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    memset(&address, 0, sizeof(address));
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (listening < 0 || bind(listening, (struct sockaddr *)&address, length) != 0 ||
        getsockname(listening, (struct sockaddr *)&address, &length) != 0) {
        perror("no port for the meeting");
        exit(1);
    }
    close(listening);
    return ntohs(address.sin_port);
}

static int start_ranks(unsigned ranks, size_t count)
{
    struct lacuna_settings *settings = NULL;
    struct lacuna_group *group = NULL;
    char host[40];
    unsigned rank;
    int status, failed = 0;
    snprintf(host, sizeof(host), "127.0.0.1:%u", free_port());
    for (rank = 0; rank < ranks; rank++) {
        pid_t child = fork();
        if (child < 0) {
            perror("fork");
            return 1;
        }
        if (child > 0)
            continue;
        check(lacuna_settings_new(&settings), "lacuna_settings_new");
        check(lacuna_settings_set(settings, "bind", "127.0.0.1"), "lacuna_settings_set");
        check(lacuna_settings_set(settings, "meeting_timeout_ms", "20000"), "lacuna_settings_set");
        check(lacuna_group_form(host, rank, ranks, settings, &group), "lacuna_group_form");
        lacuna_settings_free(settings);
        compute(group, count);
        lacuna_group_free(group);
        exit(0);
    }
    while (wait(&status) > 0)
        failed |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return failed;
}

int main(int argc, char **argv)
{
    struct lacuna_group *group = NULL;
    unsigned long ranks = 0, count = 1000000;
    int i;
    for (i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--ranks") == 0)
            ranks = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--count") == 0)
            count = strtoul(argv[i + 1], NULL, 10);
        else
            break;
    }
    if (i < argc || ranks > RANKS_MAX) {
        fprintf(stderr, "usage: all_reduce [--ranks N] [--count FLOATS]\n");
        return 2;
    }
    if (ranks > 0)
        return start_ranks((unsigned)ranks, count);
    check(lacuna_group_form_from_environment(NULL, &group), "lacuna_group_form_from_environment");
    compute(group, count);
    lacuna_group_free(group);
    return 0;
}
