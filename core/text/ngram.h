/* ngram.h - declares the n-grams of kneser_ney.c. */
#ifndef TL_NGRAM_H
#define TL_NGRAM_H

#include "toeplab-lab.h"

/* kneser_ney.c: tl_ngram_bits with TL_KNESER_NEY, of arguments that are checked. */
tl_status tl_kneser_ney(const tl_tensor *train, const tl_tensor *test, int order, int32_t v,
                        double *out_bits);

#endif
