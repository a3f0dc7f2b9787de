/* How many threads send and receive for a context of sdr.h with four channels, as the
 * environment decides. Prints the number.
 *
 *     workers EXPECTED
 */

#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <time.h>

#include "check.h"

/* Threads of this process that are named lacuna- and a number. */
static int workers(void)
{
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;
    CHECK(folder);
    while ((entry = readdir(folder))) {
        char path[300], name[32] = "";
        FILE *file;
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        if (!(file = fopen(path, "r")))
            continue;
        CHECK(fgets(name, sizeof(name), file));
        fclose(file);
        count += strncmp(name, "lacuna-", 7) == 0 && name[7] >= '0' && name[7] <= '9';
    }
    closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    const struct timespec moment = {0, 1000000};
    struct sdr_dev_attr dev = {4, 0};
    struct sdr_context *context = sdr_context_create("udp:127.0.0.1", &dev);
    int expected = argc > 1 ? atoi(argv[1]) : 0, round;
    CHECK(context);
    /* A thread gives itself its name once it runs. */
    for (round = 0; round < 5000 && workers() < expected; round++)
        nanosleep(&moment, NULL);
    for (round = 0; round < 50; round++)
        nanosleep(&moment, NULL);
    printf("%d\n", workers());
    CHECK(sdr_context_destroy(context) == SDR_SUCCESS);
    return 0;
}
