// Kernels for NVIDIA GPUs, compiled when the daemon starts (device/cuda/module). Each computes what the CPU's
// operator of the same name does (nn/ops), in float32. All tensors are contiguous. No kernel adds by atomics: sums are
// in a fixed order, so that a step leaves equal bits each time. Tests run this file on the host
// (tests/nn/gpu/cuda_on_host.h), which bounds what of CUDA it uses.

typedef long long int64;
typedef unsigned int uint32;

// Shape of a block that sums columns: it takes COLUMNS columns, and SHARES threads share the rows of each.
#define COLUMNS 8
#define SHARES 128
// Shape of a block that works on rows: it takes ROWS rows, and LANES threads walk the columns of each.
#define LANES 32
#define ROWS 8
// Bounds limit a kernel's registers to what its block may use. Otherwise a launch could fail.
#define COLUMN_KERNEL extern "C" __global__ void __launch_bounds__(SHARES* COLUMNS)
#define ROW_KERNEL extern "C" __global__ void __launch_bounds__(LANES* ROWS)

// The most columns of categories that an operator takes.
#define MOST_TABLES 16

struct Tables {
  const float* from[MOST_TABLES];
  float* to[MOST_TABLES];
  int rows[MOST_TABLES];
  int count;
};

#ifdef __CUDACC__
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(times) PRAGMA(unroll times)
#else
#define UNROLL(times)
#endif
#define WARP 32
#define ALL_LANES 0xffffffffu
// Warps of a block that sums columns. A warp has all columns, of WARP / COLUMNS shares.
#define WARPS (SHARES * COLUMNS / WARP)

// Adds up `a`, and `b`, over the threads of each column; every thread gets both sums.
__device__ void SumOfColumns(float& a, float& b) {
  __shared__ float of_a[WARPS * COLUMNS], of_b[WARPS * COLUMNS];
  const int lane = (threadIdx.y * COLUMNS + threadIdx.x) % WARP, warp = threadIdx.y / (WARP / COLUMNS);
  for (int other = COLUMNS; other < WARP; other *= 2) {
    a += __shfl_xor_sync(ALL_LANES, a, other);
    b += __shfl_xor_sync(ALL_LANES, b, other);
  }
  __syncthreads();  // what was summed before has been read
  if (lane < COLUMNS) {
    of_a[warp * COLUMNS + lane] = a;
    of_b[warp * COLUMNS + lane] = b;
  }
  __syncthreads();
  if (warp == 0) {
    a = 0;
    b = 0;
    for (int i = 0; i < WARPS / (WARP / COLUMNS); ++i) {
      a += of_a[i * WARP + lane];
      b += of_b[i * WARP + lane];
    }
    for (int other = COLUMNS; other < WARP; other *= 2) {
      a += __shfl_xor_sync(ALL_LANES, a, other);
      b += __shfl_xor_sync(ALL_LANES, b, other);
    }
    if (lane < COLUMNS) {
      of_a[lane] = a;
      of_b[lane] = b;
    }
  }
  __syncthreads();
  a = of_a[threadIdx.x];
  b = of_b[threadIdx.x];
}

__device__ float SumOfColumn(float value) {
  float nothing = 0;
  SumOfColumns(value, nothing);
  return value;
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

// The same, by all threads of a block that sums columns.
__device__ int64 LowerBoundOfBlock(const int64* keys, int64 count, int64 key) {
  const int64 own = threadIdx.y * COLUMNS + threadIdx.x, threads = SHARES * COLUMNS;
  int64 low = 0, high = count;
  while (low < high) {
    const int64 stride = (high - low + threads - 1) / threads, place = low + (own + 1) * stride - 1;
    const int below = __syncthreads_count(place < high && keys[place] < key);
    low += below * stride;
    high = low + stride - 1 < high ? low + stride - 1 : high;
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

// A thread that sums a column reads KEPT of its rows at once, and keeps their values.
#define KEPT 8

// y = dropout(relu(batch_norm(x))) of the real rows, 0 in others. Blocks: one for each COLUMNS columns. batches: may be
// null; so may step, if threshold is 0.
COLUMN_KERNEL norm_forward(const float* x, const int64* real_rows, const float* weight, const float* bias,
                           float* running_mean, float* running_var, int64* batches, const int64* step, int64 all_rows,
                           int64 columns, float momentum, float eps, uint32 seed, uint32 threshold, float kept,
                           float* y, float* mean, float* invstd) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x, rows = RealRows(real_rows, all_rows);
  const bool active = column < columns;
  const bool follows = rows > 1;
  const int64 readable = active ? rows : 0;
  float own[KEPT];
  UNROLL(KEPT)
  for (int i = 0; i < KEPT; ++i) {
    const int64 r = threadIdx.y + i * SHARES;
    own[i] = r < readable ? x[r * columns + column] : 0;
  }
  float part = 0;
  UNROLL(KEPT)
  for (int i = 0; i < KEPT; ++i) part += own[i];
  for (int64 r = threadIdx.y + KEPT * SHARES; r < readable; r += SHARES) part += x[r * columns + column];
  const float average = SumOfColumn(part) / (float)(rows > 0 ? rows : 1);
  part = 0;
  for (int i = 0; i < KEPT; ++i) {
    const float away = threadIdx.y + i * SHARES < readable ? own[i] - average : 0;
    part += away * away;
  }
  for (int64 r = threadIdx.y + KEPT * SHARES; r < readable; r += SHARES) {
    const float away = x[r * columns + column] - average;
    part += away * away;
  }
  const float squares = SumOfColumn(part);
  if (!active) return;
  const float center = follows ? average : running_mean[column];
  const float inverse = 1.0f / sqrtf((follows ? squares / (float)rows : running_var[column]) + eps);
  const float scale = inverse * weight[column], shift = bias[column] - center * scale;
  const uint32 key = threshold > 0 ? KeyOfStep(seed, *step) : 0;
  UNROLL(KEPT)
  for (int i = 0; i < KEPT; ++i) {
    const int64 r = threadIdx.y + i * SHARES;
    if (r >= all_rows) continue;
    float value = r < rows ? own[i] * scale + shift : 0;
    value = value < 0 ? 0 : value;  // keeps NaN, as relu does
    if (threshold > 0) value = IsDropped(key, threshold, r, column) ? 0 : value * kept;
    y[r * columns + column] = value;
  }
  for (int64 r = threadIdx.y + KEPT * SHARES; r < all_rows; r += SHARES) {
    float value = r < rows ? x[r * columns + column] * scale + shift : 0;
    value = value < 0 ? 0 : value;
    if (threshold > 0) value = IsDropped(key, threshold, r, column) ? 0 : value * kept;
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
COLUMN_KERNEL norm_backward(const float* grad, const float* x, const float* y, const int64* real_rows,
                            const float* weight, const float* mean, const float* invstd, int64 all_rows, int64 columns,
                            float kept, float* gx, float* gweight, float* gbias, float* before_bias) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x, rows = RealRows(real_rows, all_rows);
  const bool active = column < columns;
  const bool follows = rows > 1;
  const int64 readable = active ? rows : 0;
  const float center = active ? mean[column] : 0, inverse = active ? invstd[column] : 0;
  float own[KEPT], away[KEPT], out[KEPT];
  UNROLL(KEPT)
  for (int i = 0; i < KEPT; ++i) {
    const int64 r = threadIdx.y + i * SHARES, at = r * columns + column;
    own[i] = r < readable ? grad[at] : 0;
    away[i] = r < readable ? x[at] : center;
    out[i] = r < readable ? y[at] : 0;
  }
  float sum = 0, dot = 0;
  for (int i = 0; i < KEPT; ++i) {
    own[i] = out[i] <= 0 ? 0 : own[i] * kept;
    away[i] -= center;
    sum += own[i];
    dot += own[i] * away[i];
  }
  for (int64 r = threadIdx.y + KEPT * SHARES; r < readable; r += SHARES) {
    const int64 at = r * columns + column;
    const float g = y[at] <= 0 ? 0 : grad[at] * kept;
    sum += g;
    dot += g * (x[at] - center);
  }
  SumOfColumns(sum, dot);
  if (!active) return;
  // Running statistics are constants: nothing of the gradient passes through them.
  const float count = (float)(rows > 0 ? rows : 1), scale = weight[column] * inverse;
  const float mean_grad = follows ? sum / count : 0, mean_dot = follows ? dot * inverse * inverse / count : 0;
  UNROLL(KEPT)
  for (int i = 0; i < KEPT; ++i) {
    const int64 r = threadIdx.y + i * SHARES;
    if (r < all_rows) gx[r * columns + column] = r < rows ? scale * (own[i] - mean_grad - away[i] * mean_dot) : 0;
  }
  for (int64 r = threadIdx.y + KEPT * SHARES; r < all_rows; r += SHARES) {
    const int64 at = r * columns + column;
    gx[at] = r < rows ? scale * ((y[at] <= 0 ? 0 : grad[at] * kept) - mean_grad - (x[at] - center) * mean_dot) : 0;
  }
  if (threadIdx.y > 0) return;
  gweight[column] = dot * inverse;
  gbias[column] = sum;
  // A batch norm cancels a bias before it, so that the bias's gradient is 0. Summing gx would add up its rounding.
  if (before_bias != 0) before_bias[column] = follows ? 0 : scale * sum;
}

// grad becomes 0 where out <= 0, and stays elsewhere, also where out is NaN; gbias: its sums over rows. Blocks: one for each COLUMNS columns.
COLUMN_KERNEL relu_backward(const float* out, int64 rows, int64 columns, float* grad, float* gbias) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x, readable = column < columns ? rows : 0;
  float own[KEPT], passes[KEPT], part = 0;
  for (int64 first = threadIdx.y; first < readable; first += KEPT * SHARES) {
    UNROLL(KEPT)
    for (int i = 0; i < KEPT; ++i) {
      const int64 r = first + i * SHARES, at = r * columns + column;
      own[i] = r < readable ? grad[at] : 0;
      passes[i] = r < readable ? out[at] : 0;
    }
    UNROLL(KEPT)
    for (int i = 0; i < KEPT; ++i) {
      const int64 r = first + i * SHARES;
      const float value = passes[i] <= 0 ? 0 : own[i];
      part += value;
      if (r < readable) grad[r * columns + column] = value;
    }
  }
  const float sum = SumOfColumn(part);
  if (column < columns && threadIdx.y == 0) gbias[column] = sum;
}

// Sums of columns. Blocks: one for each COLUMNS columns.
COLUMN_KERNEL column_sums(const float* x, int64 rows, int64 columns, float* sums) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x;
  float part = 0;
  for (int64 r = threadIdx.y; column < columns && r < rows; r += SHARES) part += x[r * columns + column];
  const float sum = SumOfColumn(part);
  if (column < columns && threadIdx.y == 0) sums[column] = sum;
}

// Indexes a batch's edges in both directions: each node's in_offsets and out_offsets, and the edges sorted by source.
// The place of an edge is the number of edges before it, which the lanes of a warp count together. Threads: (LANES,
// ROWS), a warp for each edge and each offset.
ROW_KERNEL edge_index(const int64* source, const int64* target, int64 edges, int64 nodes, int* in_offsets,
                      int* out_offsets, int* out_targets, int* out_edges) {
  const int64 item = (int64)blockIdx.x * ROWS + threadIdx.y, node = item - edges;
  // An edge follows all edges of smaller sources, and the earlier edges of its own source.
  const int count = (int)edges, key = (int)(item < edges ? source[item] : node), same = item < edges ? (int)item : 0;
  int place = 0;
  UNROLL(8)
  for (int k = threadIdx.x; k < count; k += LANES) {
    const int from = (int)source[k];
    place += from < key || (from == key && k < same);
  }
  for (int other = 1; other < LANES; other *= 2) place += __shfl_xor_sync(ALL_LANES, place, other);
  if (threadIdx.x > 0 || node > nodes) return;
  if (item < edges) {
    out_edges[place] = (int)item;
    out_targets[place] = (int)target[item];
  } else {
    out_offsets[node] = place;
    in_offsets[node] = (int)LowerBound(target, edges, node);
  }
}

// A lane works on COLUMNS_OF_LANE columns and EDGES_AT_ONCE edges at once.
#define COLUMNS_OF_LANE 2
#define EDGES_AT_ONCE 2

// GINE's and GIN's sums (nn/kernels/segments.h). rows: null for GIN; code: null where each edge has a row of its own.
// The lanes of a warp read the edges of its node together, and hand them around.
ROW_KERNEL gine_sum(const float* x, const float* rows, const int* code, const int64* source, const int* offsets,
                    int64 nodes, int64 columns, float* sum) {
  const int64 i = (int64)blockIdx.x * ROWS + threadIdx.y;
  if (i >= nodes) return;
  const int begin = offsets[i], end = offsets[i + 1], lane = threadIdx.x;
  for (int64 base = lane; base - lane < columns; base += COLUMNS_OF_LANE * LANES) {
    float total[COLUMNS_OF_LANE];
    for (int u = 0; u < COLUMNS_OF_LANE; ++u) {
      total[u] = base + u * LANES < columns ? x[i * columns + base + u * LANES] : 0;
    }
    for (int first = begin; first < end; first += LANES) {
      const int own = first + lane, count = end - first < LANES ? end - first : LANES;
      const int from = own < end ? (int)source[own] : 0;
      const int row = own < end && code != 0 ? code[own] : own;
      for (int e = 0; e < count; e += EDGES_AT_ONCE) {
        float message[EDGES_AT_ONCE][COLUMNS_OF_LANE];
        UNROLL(EDGES_AT_ONCE)
        for (int v = 0; v < EDGES_AT_ONCE; ++v) {
          const int64 of_x = __shfl_sync(ALL_LANES, from, (e + v) % LANES);
          const int64 of_rows = __shfl_sync(ALL_LANES, row, (e + v) % LANES);
          UNROLL(COLUMNS_OF_LANE)
          for (int u = 0; u < COLUMNS_OF_LANE; ++u) {
            const int64 c = base + u * LANES;
            message[v][u] = 0;
            if (e + v >= count || c >= columns) continue;
            message[v][u] = x[of_x * columns + c];
            if (rows == 0) continue;
            message[v][u] += rows[of_rows * columns + c];
            if (message[v][u] < 0) message[v][u] = 0;  // keeps NaN
          }
        }
        UNROLL(EDGES_AT_ONCE)
        for (int v = 0; v < EDGES_AT_ONCE; ++v) {
          UNROLL(COLUMNS_OF_LANE)
          for (int u = 0; u < COLUMNS_OF_LANE; ++u) total[u] += message[v][u];
        }
      }
    }
    for (int u = 0; u < COLUMNS_OF_LANE; ++u) {
      if (base + u * LANES < columns) sum[i * columns + base + u * LANES] = total[u];
    }
  }
}

// The gradient of x, and of the row of each edge: ge, [edges, columns]. rows: null for GIN, whose ge is not written.
ROW_KERNEL gine_gradient(const float* x, const float* rows, const int* code, const int* offsets, const int* targets,
                         const int* edges, const float* g, int64 nodes, int64 columns, float* gx, float* ge) {
  const int64 j = (int64)blockIdx.x * ROWS + threadIdx.y;
  if (j >= nodes) return;
  const int begin = offsets[j], end = offsets[j + 1], lane = threadIdx.x;
  for (int64 base = lane; base - lane < columns; base += COLUMNS_OF_LANE * LANES) {
    float own[COLUMNS_OF_LANE], total[COLUMNS_OF_LANE];
    for (int u = 0; u < COLUMNS_OF_LANE; ++u) {
      const int64 c = base + u * LANES;
      own[u] = c < columns ? x[j * columns + c] : 0;
      total[u] = c < columns ? g[j * columns + c] : 0;
    }
    for (int first = begin; first < end; first += LANES) {
      const int place = first + lane, count = end - first < LANES ? end - first : LANES;
      const int target = place < end ? targets[place] : 0, edge = place < end ? edges[place] : 0;
      const int row = place < end && code != 0 ? code[edge] : edge;
      for (int e = 0; e < count; e += EDGES_AT_ONCE) {
        float passed[EDGES_AT_ONCE][COLUMNS_OF_LANE];
        UNROLL(EDGES_AT_ONCE)
        for (int v = 0; v < EDGES_AT_ONCE; ++v) {
          const int64 of_g = __shfl_sync(ALL_LANES, target, (e + v) % LANES);
          const int64 of_rows = __shfl_sync(ALL_LANES, row, (e + v) % LANES);
          const int64 k = __shfl_sync(ALL_LANES, edge, (e + v) % LANES);
          UNROLL(COLUMNS_OF_LANE)
          for (int u = 0; u < COLUMNS_OF_LANE; ++u) {
            const int64 c = base + u * LANES;
            passed[v][u] = 0;
            if (e + v >= count || c >= columns) continue;
            passed[v][u] = g[of_g * columns + c];
            if (rows == 0) continue;
            if (own[u] + rows[of_rows * columns + c] <= 0) passed[v][u] = 0;
            ge[k * columns + c] = passed[v][u];
          }
        }
        UNROLL(EDGES_AT_ONCE)
        for (int v = 0; v < EDGES_AT_ONCE; ++v) {
          UNROLL(COLUMNS_OF_LANE)
          for (int u = 0; u < COLUMNS_OF_LANE; ++u) total[u] += passed[v][u];
        }
      }
    }
    for (int u = 0; u < COLUMNS_OF_LANE; ++u) {
      if (base + u * LANES < columns) gx[j * columns + base + u * LANES] = total[u];
    }
  }
}

// Sums or means of rows of x over segments (nn/ops/segment_ops.h). stride: between rows of x. weights: may be null.
ROW_KERNEL segment_reduce(const float* x, int64 stride, const int64* offsets, const int64* sources,
                          const float* weights, int64 rows, int64 columns, int mean, float* out) {
  const int64 r = (int64)blockIdx.x * ROWS + threadIdx.y;
  if (r >= rows) return;
  const int64 begin = offsets[r], end = offsets[r + 1];
  const int lane = threadIdx.x;
  const float factor = mean != 0 && end > begin ? 1.0f / (float)(end - begin) : 1;
  for (int64 base = lane; base - lane < columns; base += COLUMNS_OF_LANE * LANES) {
    float total[COLUMNS_OF_LANE] = {0};
    for (int64 first = begin; first < end; first += LANES) {
      const int count = end - first < LANES ? (int)(end - first) : LANES;
      const int64 source = lane < count ? sources[first + lane] : 0;
      const float weight = lane < count && weights != 0 ? weights[first + lane] : 1;
      for (int e = 0; e < count; e += EDGES_AT_ONCE) {
        float message[EDGES_AT_ONCE][COLUMNS_OF_LANE];
        UNROLL(EDGES_AT_ONCE)
        for (int v = 0; v < EDGES_AT_ONCE; ++v) {
          const int64 from = __shfl_sync(ALL_LANES, source, (e + v) % LANES);
          const float times = __shfl_sync(ALL_LANES, weight, (e + v) % LANES);
          UNROLL(COLUMNS_OF_LANE)
          for (int u = 0; u < COLUMNS_OF_LANE; ++u) {
            const int64 c = base + u * LANES;
            message[v][u] = e + v < count && c < columns ? times * x[from * stride + c] : 0;
          }
        }
        UNROLL(EDGES_AT_ONCE)
        for (int v = 0; v < EDGES_AT_ONCE; ++v) {
          UNROLL(COLUMNS_OF_LANE)
          for (int u = 0; u < COLUMNS_OF_LANE; ++u) total[u] += message[v][u];
        }
      }
    }
    for (int u = 0; u < COLUMNS_OF_LANE; ++u) {
      if (base + u * LANES < columns) out[r * columns + base + u * LANES] = total[u] * factor;
    }
  }
}

// The sums of the edges' rows by their codes. Blocks: (one for each COLUMNS columns, codes).
COLUMN_KERNEL code_gradient(const int* code, const float* of_edges, int64 edges, int64 columns, float* ge) {
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
ROW_KERNEL embedding_sum(const int64* features, Tables tables, int64 rows, int64 columns, float* y) {
  const int64 r = (int64)blockIdx.x * ROWS + threadIdx.y;
  if (r >= rows) return;
  for (int64 c = threadIdx.x; c < columns; c += LANES) {
    float total = 0;
    for (int t = 0; t < tables.count; ++t) total += tables.from[t][features[r * tables.count + t] * columns + c];
    y[r * columns + c] = total;
  }
}

// The tables' gradients. Blocks: (one for each COLUMNS columns, rows of all tables).
COLUMN_KERNEL embedding_gradient(const float* grad, const int64* features, Tables tables, int64 rows, int64 columns) {
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
ROW_KERNEL combine_categories(const int64* features, Tables tables, int64 rows, int* codes) {
  const int64 r = (int64)blockIdx.x * (LANES * ROWS) + threadIdx.y * LANES + threadIdx.x;
  if (r >= rows) return;
  int64 code = 0;
  for (int t = 0; t < tables.count; ++t) code = code * tables.rows[t] + features[r * tables.count + t];
  codes[r] = (int)code;
}

// y[g] = the sum, or the mean, of the rows of graph g. graph_of_row rises. Blocks: (one for each COLUMNS columns,
// graphs).
COLUMN_KERNEL pool(const float* x, const int64* graph_of_row, int64 rows, int64 columns, int mean, float* y) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x, graph = blockIdx.y;
  const int64 begin = LowerBoundOfBlock(graph_of_row, rows, graph);
  const int64 end = LowerBoundOfBlock(graph_of_row, rows, graph + 1);
  float part = 0;
  for (int64 r = begin + threadIdx.y; column < columns && r < end; r += SHARES) part += x[r * columns + column];
  const float sum = SumOfColumn(part);
  if (column >= columns || threadIdx.y > 0) return;
  y[graph * columns + column] = mean != 0 && end > begin ? sum / (float)(end - begin) : sum;
}

// Its gradient, by the same blocks.
COLUMN_KERNEL pool_gradient(const float* grad, const int64* graph_of_row, int64 rows, int64 columns, int mean,
                            float* gx) {
  const int64 column = (int64)blockIdx.x * COLUMNS + threadIdx.x, graph = blockIdx.y;
  const int64 begin = LowerBoundOfBlock(graph_of_row, rows, graph);
  const int64 end = LowerBoundOfBlock(graph_of_row, rows, graph + 1);
  if (column >= columns) return;
  const float factor = mean != 0 ? 1.0f / (float)(end - begin) : 1;
  for (int64 r = begin + threadIdx.y; r < end; r += SHARES) {
    gx[r * columns + column] = grad[graph * columns + column] * factor;
  }
}

// Adds up `a`, and `b`, over all threads of a block that sums columns; every thread gets both sums.
__device__ void SumOfBlock(float& a, float& b) {
  SumOfColumns(a, b);
  for (int other = 1; other < COLUMNS; other *= 2) {
    a += __shfl_xor_sync(ALL_LANES, a, other);
    b += __shfl_xor_sync(ALL_LANES, b, other);
  }
}

__device__ bool IsClass(float label, int64 classes) { return label >= 0 && label < (float)classes; }

__device__ float Divisor(float count) { return count > 1.17549435e-38f ? count : 1.17549435e-38f; }

// The mean of |p - y| or (p - y)^2 over the labels that are not NaN, with its gradient. Blocks: one.
COLUMN_KERNEL regression_loss(const float* prediction, const float* labels, int64 values, int square, float* mean,
                              float* sum, float* count, float* gradient) {
  const int64 own = threadIdx.y * COLUMNS + threadIdx.x;
  float present = 0, part = 0;
  for (int64 i = own; i < values; i += SHARES * COLUMNS) {
    const float label = labels[i], difference = label == label ? prediction[i] - label : 0;
    present += label == label ? 1 : 0;
    part += square != 0 ? difference * difference : fabsf(difference);
  }
  float counted = present, total = part;
  SumOfBlock(counted, total);
  const float divisor = Divisor(counted);
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
COLUMN_KERNEL cross_entropy_loss(const float* logits, const float* labels, const float* weights, int64 rows,
                                 int64 classes, float* mean, float* sum, float* count, float* gradient) {
  // COLUMNS threads, which are lanes of one warp, share a row's classes.
  const int lane = threadIdx.x;
  const uint32 lanes = ((1u << COLUMNS) - 1) << (threadIdx.y % (WARP / COLUMNS) * COLUMNS);
  float counted = 0, nothing = 0;
  for (int64 r = threadIdx.y; lane == 0 && r < rows; r += SHARES) {
    if (IsClass(labels[r], classes)) counted += weights != 0 ? weights[(int64)labels[r]] : 1;
  }
  SumOfBlock(counted, nothing);
  const float divisor = Divisor(counted);
  float part = 0;
  for (int64 r = threadIdx.y; r < rows; r += SHARES) {
    const float* row = logits + r * classes;
    float* to = gradient + r * classes;
    const bool known = IsClass(labels[r], classes);
    float top = row[lane < classes ? lane : 0], exponents = 0;
    for (int64 c = lane; c < classes; c += COLUMNS) top = row[c] > top ? row[c] : top;
    for (int other = 1; other < COLUMNS; other *= 2) {
      const float of_other = __shfl_xor_sync(lanes, top, other);
      top = of_other > top ? of_other : top;
    }
    for (int64 c = lane; c < classes; c += COLUMNS) exponents += expf(row[c] - top);
    for (int other = 1; other < COLUMNS; other *= 2) exponents += __shfl_xor_sync(lanes, exponents, other);
    const int64 label = known ? (int64)labels[r] : 0;
    const float weight = known && weights != 0 ? weights[label] : 1, factor = weight / divisor;
    for (int64 c = lane; c < classes; c += COLUMNS) {
      to[c] = known ? factor * (expf(row[c] - top) / exponents - (c == label ? 1.0f : 0)) : 0;
    }
    if (lane > 0) continue;
    if (known) part += weight * (logf(exponents) + top - row[label]);
    if (!known && labels[r] == labels[r]) part += nanf("");
  }
  SumOfBlock(part, nothing);
  if (lane > 0 || threadIdx.y > 0) return;
  *mean = part / divisor;
  *sum = part;
  *count = counted;
}
