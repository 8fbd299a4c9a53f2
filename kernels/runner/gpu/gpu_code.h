/* A code object: what the run-time compiler made of a config, what is known of it, and how it is kept.
 *
 * Kept in a folder as HASH.code, what a program needs to load and launch it and then the object's bytes
 * (PROTOCOL.md, "Kept code"); and as KEY.key, which names the hash that a source with its options and compiler
 * was built to. */
#ifndef FLYTUNE_KERNELS_RUNNER_GPU_CODE_H
#define FLYTUNE_KERNELS_RUNNER_GPU_CODE_H

#include "proto/messages.h"

struct gpu_code {
	uint8_t *data; /* owned; NULL if there is none */
	size_t size;
	char hash[FT_HASH_SIZE]; /* of the machine code and the launch */
	char symbol[64];         /* the kernel's name in it */
	char target[64];
	uint64_t max_threads; /* of a block, as the compiler was told; 0 if the object does not say */
	uint64_t registers;   /* a thread */
	uint64_t spills;      /* registers that were spilled (AMD) or bytes (NVIDIA) */
	uint64_t shared;      /* bytes a block */
	uint64_t local;       /* bytes a thread: stack and spills */
	uint64_t wave;        /* 0 if the object does not say */
	uint64_t version;     /* AMD's code-object version; 0 on NVIDIA */
	uint64_t build_ns;
};

void gpu_code_free(struct gpu_code *code);

/* Fills in all but build_ns from the object's bytes and, on NVIDIA, the assembler's words in the compiler's
 * log. `launch` is hashed along with the machine code: any text that says how it is launched. */
int gpu_code_inspect(struct gpu_code *code, const char *symbol, const char *log, const char *launch,
        struct ft_error *error);

/* What was built under a key: 1 and the code, 0 if there is none (or a damaged one). Never fails. */
int gpu_code_load(const char *folder, const char *key, struct gpu_code *code);
/* What is kept beside a code object; it has one step. */
struct gpu_about {
	struct ft_code_about code;
	struct ft_code_step step;
};

/* Keeps it, on disk before its name is. `launch` has what is no property of the object: its launch and its
 * builder; NULL for code that nobody but the runner launches. */
int gpu_code_keep(const char *folder, const char *key, const struct gpu_code *code,
        const struct gpu_about *launch, struct ft_error *error);

#endif
