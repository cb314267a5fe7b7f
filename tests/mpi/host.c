/* host.c: groups in a program that begins and ends MPI itself, and calls that are refused.
**   mpirun -n P host, with P > 1 */
#include <mpi.h>

#include "test.h"

static tl_ctx   *ctx;
static tl_ranks *all;

/* Two groups of all processes, one after the other left: MPI goes on. */
static void opened_twice(void)
{
    tl_ranks *again = NULL;
    int       ended = 1, size = 0;
    CHECK_STATUS(tl_ranks_open(ctx, &again), TL_OK);
    tl_ranks_free(again);
    CHECK(MPI_Finalized(&ended) == MPI_SUCCESS && !ended);
    CHECK_STATUS(tl_ranks_barrier(all), TL_OK);
    CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS && size == tl_ranks_size(all));
}

static void words(void)
{
    int32_t word = 7;
    int     there = 0, own = tl_ranks_rank(all), other = own == 0;
    CHECK_STATUS(tl_ranks_send_word(all, other, 0, 1), TL_EINVAL);
    CHECK_STATUS(tl_ranks_take_word(all, other, 0, &there, &word), TL_EINVAL);
    CHECK_STATUS(tl_ranks_send_word(all, own, 1, 1), TL_EINVAL);
    CHECK(!there && word == 7);
}

static void backward(void)
{
    const int64_t dims[1] = {2};
    tl_tensor    *t = NULL, *loss = NULL;
    int           own = tl_ranks_rank(all);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 1, dims, &t), TL_OK);
    CHECK_STATUS(tl_tensor_fill(t, 1.0), TL_OK);
    CHECK_STATUS(tl_set_requires_grad(t, 1), TL_OK);
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, t, 0, 0, &loss), TL_OK);
    CHECK_STATUS(tl_ranks_send(all, own, 1, t), TL_EINVAL);
    CHECK_STATUS(tl_ranks_backward(all, loss, (tl_tensor *const[]){t, t}, 2, -1, -1), TL_EINVAL);
    CHECK_STATUS(tl_ranks_backward(all, loss, &t, 1, own, -1), TL_EINVAL);
    CHECK_STATUS(tl_ranks_backward(all, loss, &t, 1, -1, tl_ranks_size(all)), TL_EINVAL);
    CHECK_STATUS(tl_ranks_backward(all, loss, &t, 1, -1, -1), TL_OK);
    tl_tensor_free(loss);
    tl_tensor_free(t);
}

int main(int argc, char **argv)
{
    int ended = 1, bad;
    if (MPI_Init(&argc, &argv) || tl_ctx_new(1, &ctx) || tl_ranks_open(ctx, &all)) return 1;
    bad = run_tests((const test[]){{"opened twice", opened_twice}, {"words", words},
                                   {"backward", backward}, {0}});
    tl_ranks_free(all);
    tl_ctx_free(ctx);
    if (MPI_Finalized(&ended) || ended) return 1; /* by the library, which has not begun it */
    return MPI_Finalize() || bad;
}
