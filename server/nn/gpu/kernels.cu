// Kernels for NVIDIA GPUs, compiled when a job first needs them (device/cuda). Each computes what the CPU's operator of
// the same name does (nn/ops), in float32. All tensors are contiguous. No kernel adds by atomics: sums are in a fixed
// order, so that a step leaves equal bits each time. There are no warp primitives and no dynamic shared memory, so that
// tests run this file on the host (tests/nn/cuda_on_host.h).

typedef long long int64;
typedef unsigned int uint32;

// Shape of a block that sums columns: so many columns, whose rows so many threads share.
#define COLUMNS 8
#define SHARES 128
// Shape of a block that works on rows: so many threads walk the columns of each of so many rows.
#define LANES 32
#define ROWS 8
// An operator takes at most so many columns of categories.
#define MOST_TABLES 16

struct Tables {
  const float* from[MOST_TABLES];
  float* to[MOST_TABLES];
  int rows[MOST_TABLES];
  int count;
};

// Returns, to each thread, the sum of `value` over the threads of its column.
__device__ float SumOfColumn(float value) {
  __shared__ float shared[SHARES * COLUMNS];
  const int own = threadIdx.y * COLUMNS + threadIdx.x;
  __syncthreads();
  shared[own] = value;
  for (int half = SHARES / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) shared[own] += shared[own + half * COLUMNS];
  }
  __syncthreads();
  return shared[threadIdx.x];
}

// The first place in [0, count) of rising `keys` that is not below `key`, else count.
__device__ int64 LowerBound(const int64* keys, int64 count, int64 key) {
  int64 low = 0, high = count;
  while (low < high) {
    const int64 middle = (low + high) / 2;
    if (keys[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Dropout's hash (nn/kernels/norm.h).
__device__ uint32 Mix(uint32 h) {
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  return h ^ (h >> 16);
}

__device__ uint32 KeyOfStep(uint32 seed, int64 step) { return Mix(Mix(seed ^ (uint32)step) ^ (uint32)(step >> 32)); }

__device__ bool IsDropped(uint32 key, uint32 threshold, int64 row, int64 column) {
  return Mix(Mix((uint32)row ^ key) ^ ((uint32)column * 0x9e3779b9u)) < threshold;
}

__device__ int64 RealRows(const int64* real_rows, int64 all_rows) {
  return *real_rows < 0 ? 0 : *real_rows > all_rows ? all_rows : *real_rows;
}

// y = dropout(relu(batch_norm(x))) of the real rows, 0 in others. Blocks: one for each COLUMNS columns. batches: may be
// null; so may step, if threshold is 0.
extern "C" __global__ void norm_forward(const float* x, const int64* real_rows, const float* weight, const float* bias,
                                        float* running_mean, float* running_var, int64* batches, const int64* step,
                                        int64 all_rows, int64 columns, float momentum, float eps, uint32 seed,
                                        uint32 threshold, float kept, float* y, float* mean, float* invstd) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x, rows = RealRows(real_rows, all_rows);
  const bool active = column < columns, follows = rows > 1;
  float part = 0;
  for (int64 r = threadIdx.y; active && r < rows; r += SHARES) part += x[r * columns + column];
  const float average = SumOfColumn(part) / (float)(rows > 0 ? rows : 1);
  part = 0;
  for (int64 r = threadIdx.y; active && r < rows; r += SHARES) {
    const float away = x[r * columns + column] - average;
    part += away * away;
  }
  const float squares = SumOfColumn(part);
  if (!active) return;
  const float center = follows ? average : running_mean[column];
  const float inverse = 1.0f / sqrtf((follows ? squares / (float)rows : running_var[column]) + eps);
  const float scale = inverse * weight[column], shift = bias[column] - center * scale;
  const uint32 key = threshold > 0 ? KeyOfStep(seed, *step) : 0;
  for (int64 r = threadIdx.y; r < all_rows; r += SHARES) {
    float value = 0;
    if (r < rows) {
      value = x[r * columns + column] * scale + shift;
      value = value < 0 ? 0 : value;  // keeps NaN, as relu does
      if (threshold > 0) value = IsDropped(key, threshold, r, column) ? 0 : value * kept;
    }
    y[r * columns + column] = value;
  }
  if (threadIdx.y > 0) return;
  mean[column] = center;
  invstd[column] = inverse;
  if (!follows) return;
  running_mean[column] += momentum * (average - running_mean[column]);
  running_var[column] += momentum * (squares / (float)(rows - 1) - running_var[column]);
  if (batches != 0 && column == 0) ++*batches;
}

// The gradients of norm_forward. before_bias: may be null; else it gets the sums of gx over rows, which is the gradient
// of a bias that x had.
extern "C" __global__ void norm_backward(const float* grad, const float* x, const float* y, const int64* real_rows,
                                         const float* weight, const float* mean, const float* invstd, int64 all_rows,
                                         int64 columns, float kept, float* gx, float* gweight, float* gbias,
                                         float* before_bias) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x, rows = RealRows(real_rows, all_rows);
  const bool active = column < columns, follows = rows > 1;
  const float center = active ? mean[column] : 0, inverse = active ? invstd[column] : 0;
  float sum_part = 0, dot_part = 0;
  for (int64 r = threadIdx.y; active && r < rows; r += SHARES) {
    const int64 i = r * columns + column;
    const float g = y[i] > 0 ? grad[i] * kept : 0;
    sum_part += g;
    dot_part += g * (x[i] - center);
  }
  const float sum = SumOfColumn(sum_part), dot = SumOfColumn(dot_part);
  // Running statistics are constants: nothing of the gradient passes through them.
  const float count = (float)(rows > 0 ? rows : 1), scale = active ? weight[column] * inverse : 0;
  const float mean_grad = follows ? sum / count : 0, mean_dot = follows ? dot * inverse * inverse / count : 0;
  float total = 0;
  for (int64 r = threadIdx.y; active && r < all_rows; r += SHARES) {
    const int64 i = r * columns + column;
    float value = 0;
    if (r < rows) value = scale * ((y[i] > 0 ? grad[i] * kept : 0) - mean_grad - (x[i] - center) * mean_dot);
    gx[i] = value;
    total += value;
  }
  if (before_bias != 0) total = SumOfColumn(total);
  if (!active || threadIdx.y > 0) return;
  gweight[column] = dot * inverse;
  gbias[column] = sum;
  if (before_bias != 0) before_bias[column] = total;
}

// grad = grad where out > 0, else 0; gbias: its sums over rows. Blocks: one for each COLUMNS columns.
extern "C" __global__ void relu_backward(const float* out, int64 rows, int64 columns, float* grad, float* gbias) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x;
  float part = 0;
  for (int64 r = threadIdx.y; column < columns && r < rows; r += SHARES) {
    const int64 i = r * columns + column;
    const float value = out[i] > 0 ? grad[i] : 0;
    grad[i] = value;
    part += value;
  }
  const float sum = SumOfColumn(part);
  if (column < columns && threadIdx.y == 0) gbias[column] = sum;
}

// Sums of columns. Blocks: one for each COLUMNS columns.
extern "C" __global__ void column_sums(const float* x, int64 rows, int64 columns, float* sums) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x;
  float part = 0;
  for (int64 r = threadIdx.y; column < columns && r < rows; r += SHARES) part += x[r * columns + column];
  const float sum = SumOfColumn(part);
  if (column < columns && threadIdx.y == 0) sums[column] = sum;
}

// GINE's and GIN's sums (nn/kernels/gine.h). rows: null for GIN; code: null where each edge has a row of its own.
extern "C" __global__ void gine_sum(const float* x, const float* rows, const int* code, const int64* source,
                                    const int* offsets, int64 nodes, int64 columns, float* sum) {
  const int64 i = (int64)blockIdx.x * ROWS + threadIdx.y;
  if (i >= nodes) return;
  const int begin = offsets[i], end = offsets[i + 1];
  for (int64 c = threadIdx.x; c < columns; c += LANES) {
    float total = x[i * columns + c];
    for (int k = begin; k < end; ++k) {
      float message = x[source[k] * columns + c];
      if (rows != 0) {
        message += rows[(int64)(code != 0 ? code[k] : k) * columns + c];
        message = message < 0 ? 0 : message;  // keeps NaN
      }
      total += message;
    }
    sum[i * columns + c] = total;
  }
}

// The gradient of x, and of the row of each edge: ge, [edges, columns]. rows: null for GIN, whose ge is not written.
extern "C" __global__ void gine_gradient(const float* x, const float* rows, const int* code, const int* offsets,
                                         const int* targets, const int* edges, const float* g, int64 nodes,
                                         int64 columns, float* gx, float* ge) {
  const int64 j = (int64)blockIdx.x * ROWS + threadIdx.y;
  if (j >= nodes) return;
  const int begin = offsets[j], end = offsets[j + 1];
  for (int64 c = threadIdx.x; c < columns; c += LANES) {
    const float own = x[j * columns + c];
    float total = g[j * columns + c];
    for (int p = begin; p < end; ++p) {
      const int64 k = edges[p];
      float passed = g[(int64)targets[p] * columns + c];
      if (rows != 0) {
        if (!(own + rows[(code != 0 ? code[k] : k) * columns + c] > 0)) passed = 0;
        ge[k * columns + c] = passed;
      }
      total += passed;
    }
    gx[j * columns + c] = total;
  }
}

// The sums of the edges' rows by their codes. Blocks: (one for each COLUMNS columns, codes).
extern "C" __global__ void code_gradient(const int* code, const float* of_edges, int64 edges, int64 columns,
                                         float* ge) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x;
  const int own = blockIdx.y;
  float part = 0;
  for (int64 k = threadIdx.y; column < columns && k < edges; k += SHARES) {
    if (code[k] == own) part += of_edges[k * columns + column];
  }
  const float sum = SumOfColumn(part);
  if (column < columns && threadIdx.y == 0) ge[own * columns + column] = sum;
}

// y[r] = the sum of row features[r][t] of each table t.
extern "C" __global__ void embedding_sum(const int64* features, Tables tables, int64 rows, int64 columns, float* y) {
  const int64 r = (int64)blockIdx.x * ROWS + threadIdx.y;
  if (r >= rows) return;
  for (int64 c = threadIdx.x; c < columns; c += LANES) {
    float total = 0;
    for (int t = 0; t < tables.count; ++t) total += tables.from[t][features[r * tables.count + t] * columns + c];
    y[r * columns + c] = total;
  }
}

// The tables' gradients. Blocks: (one for each COLUMNS columns, rows of all tables).
extern "C" __global__ void embedding_gradient(const float* grad, const int64* features, Tables tables, int64 rows,
                                              int64 columns) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x;
  int table = 0, own = blockIdx.y;
  while (own >= tables.rows[table]) own -= tables.rows[table++];
  float part = 0;
  for (int64 r = threadIdx.y; column < columns && r < rows; r += SHARES) {
    if (features[r * tables.count + table] == own) part += grad[r * columns + column];
  }
  const float sum = SumOfColumn(part);
  if (column < columns && threadIdx.y == 0) tables.to[table][own * columns + column] = sum;
}

// codes[r] = the place of a row's categories among all combinations. Threads: one for each row.
extern "C" __global__ void combine_categories(const int64* features, Tables tables, int64 rows, int* codes) {
  const int64 r = (int64)blockIdx.x * (LANES * ROWS) + threadIdx.y * LANES + threadIdx.x;
  if (r >= rows) return;
  int64 code = 0;
  for (int t = 0; t < tables.count; ++t) code = code * tables.rows[t] + features[r * tables.count + t];
  codes[r] = (int)code;
}

// y[g] = the sum, or the mean, of the rows of graph g. graph_of_row rises. Blocks: (one for each COLUMNS columns,
// graphs).
extern "C" __global__ void pool(const float* x, const int64* graph_of_row, int64 rows, int64 columns, int mean,
                                float* y) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x, graph = blockIdx.y;
  const int64 begin = LowerBound(graph_of_row, rows, graph), end = LowerBound(graph_of_row, rows, graph + 1);
  float part = 0;
  for (int64 r = begin + threadIdx.y; column < columns && r < end; r += SHARES) part += x[r * columns + column];
  const float sum = SumOfColumn(part);
  if (column >= columns || threadIdx.y > 0) return;
  y[graph * columns + column] = mean != 0 && end > begin ? sum / (float)(end - begin) : sum;
}

extern "C" __global__ void pool_gradient(const float* grad, const int64* graph_of_row, int64 rows, int64 columns,
                                         int mean, float* gx) {
  const int64 r = (int64)blockIdx.x * ROWS + threadIdx.y;
  if (r >= rows) return;
  const int64 graph = graph_of_row[r];
  float factor = 1;
  if (mean != 0) {
    factor = 1.0f / (float)(LowerBound(graph_of_row, rows, graph + 1) - LowerBound(graph_of_row, rows, graph));
  }
  for (int64 c = threadIdx.x; c < columns; c += LANES) gx[r * columns + c] = grad[graph * columns + c] * factor;
}

// Returns, to every thread of the block, the sum of `value` over them all.
__device__ float SumOfBlock(float value) {
  __shared__ float shared[SHARES * COLUMNS];
  const int own = threadIdx.y * COLUMNS + threadIdx.x;
  __syncthreads();
  shared[own] = value;
  for (int half = SHARES * COLUMNS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (own < half) shared[own] += shared[own + half];
  }
  __syncthreads();
  return shared[0];
}

__device__ bool IsClass(float label, int64 classes) { return label >= 0 && label < (float)classes; }

__device__ float Divisor(float count) { return count > 1.17549435e-38f ? count : 1.17549435e-38f; }

// The mean of |p - y| or (p - y)^2 over the labels that are not NaN, with its gradient. Blocks: one.
extern "C" __global__ void regression_loss(const float* prediction, const float* labels, int64 values, int square,
                                           float* mean, float* sum, float* count, float* gradient) {
  const int64 own = threadIdx.y * COLUMNS + threadIdx.x;
  float present = 0, part = 0;
  for (int64 i = own; i < values; i += SHARES * COLUMNS) {
    const float label = labels[i], difference = label == label ? prediction[i] - label : 0;
    present += label == label ? 1 : 0;
    part += square != 0 ? difference * difference : fabsf(difference);
  }
  const float counted = SumOfBlock(present), total = SumOfBlock(part), divisor = Divisor(counted);
  for (int64 i = own; i < values; i += SHARES * COLUMNS) {
    const float label = labels[i], difference = label == label ? prediction[i] - label : 0;
    const float sign = difference > 0 ? 1.0f : difference < 0 ? -1.0f : 0;
    gradient[i] = (square != 0 ? 2 * difference : sign) / divisor;
  }
  if (own > 0) return;
  *mean = total / divisor;
  *sum = total;
  *count = counted;
}

// The mean cross-entropy of the rows whose label is not NaN, with its gradient. weights: of the classes, or null. A
// label that is no class makes the mean NaN. Blocks: one.
extern "C" __global__ void cross_entropy_loss(const float* logits, const float* labels, const float* weights,
                                              int64 rows, int64 classes, float* mean, float* sum, float* count,
                                              float* gradient) {
  const int64 own = threadIdx.y * COLUMNS + threadIdx.x;
  float present = 0;
  for (int64 r = own; r < rows; r += SHARES * COLUMNS) {
    if (IsClass(labels[r], classes)) present += weights != 0 ? weights[(int64)labels[r]] : 1;
  }
  const float counted = SumOfBlock(present), divisor = Divisor(counted);
  float part = 0;
  for (int64 r = own; r < rows; r += SHARES * COLUMNS) {
    const float* row = logits + r * classes;
    float* to = gradient + r * classes;
    if (!IsClass(labels[r], classes)) {
      for (int64 c = 0; c < classes; ++c) to[c] = 0;
      if (labels[r] == labels[r]) part += nanf("");
      continue;
    }
    const int64 label = (int64)labels[r];
    const float weight = weights != 0 ? weights[label] : 1;
    float top = row[0], exponents = 0;
    for (int64 c = 1; c < classes; ++c) top = row[c] > top ? row[c] : top;
    for (int64 c = 0; c < classes; ++c) exponents += expf(row[c] - top);
    part += weight * (logf(exponents) + top - row[label]);
    const float factor = weight / divisor;
    for (int64 c = 0; c < classes; ++c) {
      to[c] = factor * (expf(row[c] - top) / exponents - (c == label ? 1.0f : 0));
    }
  }
  const float total = SumOfBlock(part);
  if (own > 0) return;
  *mean = total / divisor;
  *sum = total;
  *count = counted;
}
