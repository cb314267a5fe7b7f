/* loss.h - what the kernels of cross entropy, of the CPU and of a GPU, call their arguments. */
#ifndef TL_LOSS_H
#define TL_LOSS_H

#include "engine/launch.h"

/* Places in tl_args.in. LOSS_W and LOSS_BIAS may be NULL: without w, x holds the logits. */
enum { LOSS_X, LOSS_W, LOSS_BIAS, LOSS_TARGETS };

/* Places in tl_args.out: the loss, one number, and its gradients; NULL: not wanted. */
enum { LOSS, LOSS_DX, LOSS_DW, LOSS_DBIAS, LOSS_OUTPUTS };

#endif
