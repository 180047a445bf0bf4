// From the rows of a tile to the kernel that computes a few of them side by side. Included by
// tile_*.cpp inside their namespace, behind ROWS_MAX and some_rows<BITS, LOW, ROWS>(data, rows,
// first, y).

// Computes the rows left, fewer than ROWS + 1 of them.
template <int BITS, bool LOW, int ROWS>
void rest_of_rows(const uint8_t *data, const Rows &rows, int first, int last, float *y) {
  if (last - first == ROWS) return some_rows<BITS, LOW, ROWS>(data, rows, first, y);
  if constexpr (ROWS > 1) rest_of_rows<BITS, LOW, ROWS - 1>(data, rows, first, last, y);
}

template <int BITS, bool LOW>
void all_rows(const uint8_t *data, const Rows &rows, int first, int last, float *y) {
  for (; last - first >= ROWS_MAX; first += ROWS_MAX, y += ROWS_MAX * TSK_TILE) {
    some_rows<BITS, LOW, ROWS_MAX>(data, rows, first, y);
  }
  rest_of_rows<BITS, LOW, ROWS_MAX - 1>(data, rows, first, last, y);
}

template <int BITS>
void all_rows(const Tile &tile, const Rows &rows, int first, int last, float *y) {
  return tile.has_low ? all_rows<BITS, true>(tile.data, rows, first, last, y)
                      : all_rows<BITS, false>(tile.data, rows, first, last, y);
}

inline void every_row(const Tile &tile, const Rows &rows, int first, int last, float *y) {
  return tile.bits == 4 ? all_rows<4>(tile, rows, first, last, y)
                        : all_rows<8>(tile, rows, first, last, y);
}
