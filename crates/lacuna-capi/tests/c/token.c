/* Queue pairs whose infos a program exchanges: with a token they are encrypted, and an
 * end with one and an end without refuse each other in words. Takes the device; the
 * token's file is what LACUNA_TOKEN_FILE names. */

#define _POSIX_C_SOURCE 200809L

#include "pair.h"

static void *info_of(struct end *end)
{
    size_t size = 0;
    void *info;
    CHECK(sdr_qp_info_size_get(end->qp, &size) == SDR_SUCCESS);
    info = malloc(size);
    CHECK(info);
    CHECK(sdr_qp_info_get(end->qp, info) == SDR_SUCCESS);
    return info;
}

int main(int argc, char **argv)
{
    struct sdr_qp_attr attr = pair_attr();
    struct end secure, clear;
    void *of_secure, *of_clear;
    CHECK(argc == 2);
    CHECK(getenv("LACUNA_TOKEN_FILE"));
    secure = make_end(argv[1], &attr);
    CHECK(unsetenv("LACUNA_TOKEN_FILE") == 0);
    clear = make_end(argv[1], &attr);
    of_secure = info_of(&secure);
    of_clear = info_of(&clear);
    CHECK_ERROR(sdr_qp_connect(secure.qp, of_clear), "of an end in clear");
    CHECK_ERROR(sdr_qp_connect(clear.qp, of_secure), "of an end that encrypts");
    CHECK_ERROR(sdr_qp_connect(secure.qp, of_secure), "this end's own");
    free(of_secure);
    free(of_clear);
    end_pair(&secure);
    end_pair(&clear);
    puts("each was refused");
    return 0;
}
