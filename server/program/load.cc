#include "program/load.h"

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <caffe2/serialize/file_adapter.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"
#include "program/decode.h"
#include "program/interpreter.h"
#include "program/libtorch.h"
#include "program/operators.h"

namespace permafrost::program {
namespace {

using caffe2::serialize::PyTorchStreamReader;

constexpr std::string_view kModels = "models/";
constexpr std::string_view kJson = ".json";

class BytesAdapter : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit BytesAdapter(std::string_view bytes) : bytes_(bytes) {}
  size_t size() const override { return bytes_.size(); }
  size_t read(uint64_t place, void* into, size_t count, const char* /*what*/) const override {
    if (place >= bytes_.size()) return 0;
    const size_t read = std::min<size_t>(count, bytes_.size() - place);
    std::memcpy(into, bytes_.data() + place, read);
    return read;
  }

 private:
  std::string_view bytes_;
};

absl::Status CheckBytes(uint64_t bytes, const Limits& limits) {
  if (bytes <= static_cast<uint64_t>(limits.archive_bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("archive: its ", bytes, " bytes are more than the ",
                                                 limits.archive_bytes, " that a program may have"));
}

// Reads the records of a `.pt2` archive of torch.export with libtorch's own reader, within the limits. Nothing in the
// archive is executed or unpickled. Threads: one thread at a time. Memory: OfBytes borrows the bytes.
class Archive {
 public:
  // Errors: InvalidArgument if the file is no `.pt2` archive or exceeds the limits; NotFound if the file does not
  // exist.
  static absl::StatusOr<Archive> Open(const std::filesystem::path& path, const Limits& limits);
  static absl::StatusOr<Archive> OfBytes(std::string_view bytes, const Limits& limits);

  // Returns the names of the forms: "eval" and "train", or "model".
  const std::vector<std::string>& forms() const { return forms_; }
  // Returns the size of the whole archive in bytes.
  int64_t bytes() const { return static_cast<int64_t>(bytes_); }
  bool Has(const std::string& record) const;
  // Returns the text of a record of at most Limits::json_bytes.
  absl::StatusOr<std::string> ReadText(const std::string& record) const;
  // Returns the size of a record in bytes. It is at most the size of the archive, since torch.export compresses
  // nothing.
  absl::StatusOr<int64_t> SizeOf(const std::string& record) const;
  // Writes the whole record to `into`, which has room for `bytes`, the result of SizeOf.
  absl::Status Read(const std::string& record, void* into, int64_t bytes) const;

 private:
  Archive(const Limits& limits, uint64_t bytes) : limits_(limits), bytes_(bytes) {}
  // Makes the reader. Replaces libtorch's messages in errors by messages of this project.
  template <class MakeReader>
  absl::Status Begin(const MakeReader& make);
  absl::Status Check();

  Limits limits_;
  uint64_t bytes_;
  std::unique_ptr<PyTorchStreamReader> reader_;
  std::vector<std::string> forms_;
};

template <class MakeReader>
absl::Status Archive::Begin(const MakeReader& make) {
  absl::Status begun = CatchTorch("archive", [&] {
    reader_ = make();
    return absl::OkStatus();
  });
  // This replaces libtorch's own message, which is about checkpoints and libtorch's zip library.
  if (!absl::IsInvalidArgument(begun)) return begun;
  return absl::InvalidArgumentError(
      "archive: is no whole zip file; accepted: a .pt2 file of permafrost.export or torch.export");
}

absl::StatusOr<Archive> Archive::Open(const std::filesystem::path& path, const Limits& limits) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return absl::NotFoundError(absl::StrCat(Quote(path.string()), ": ", error.message()));
  PF_RETURN_IF_ERROR(CheckBytes(bytes, limits));
  Archive archive(limits, bytes);
  PF_RETURN_IF_ERROR(archive.Begin([&] { return std::make_unique<PyTorchStreamReader>(path.string()); }));
  PF_RETURN_IF_ERROR(archive.Check());
  return archive;
}

absl::StatusOr<Archive> Archive::OfBytes(std::string_view bytes, const Limits& limits) {
  PF_RETURN_IF_ERROR(CheckBytes(bytes.size(), limits));
  Archive archive(limits, bytes.size());
  PF_RETURN_IF_ERROR(
      archive.Begin([&] { return std::make_unique<PyTorchStreamReader>(std::make_shared<BytesAdapter>(bytes)); }));
  PF_RETURN_IF_ERROR(archive.Check());
  return archive;
}

absl::Status Archive::Check() {
  PF_RETURN_IF_ERROR(CatchTorch("archive", [this] {
    const std::vector<std::string> records = reader_->getAllRecords();
    if (static_cast<int64_t>(records.size()) > limits_.records) {
      return absl::InvalidArgumentError(
          absl::StrCat("archive: its ", records.size(), " records are more than ", limits_.records));
    }
    for (const std::string& record : records) {
      if (!absl::StartsWith(record, {kModels.data(), kModels.size()}) || !absl::EndsWith(record, ".json")) continue;
      forms_.push_back(record.substr(kModels.size(), record.size() - kModels.size() - kJson.size()));
    }
    return absl::OkStatus();
  }));
  std::sort(forms_.begin(), forms_.end());
  if (forms_ != std::vector<std::string>{"model"} && forms_ != std::vector<std::string>{"eval", "train"}) {
    return absl::InvalidArgumentError(
        absl::StrCat("archive: models/: holds ", forms_.empty() ? "no program" : Quote(absl::StrJoin(forms_, ", ")),
                     ", where train.json and eval.json are accepted, or model.json alone"));
  }
  for (const auto& [record, wanted] : {std::pair("archive_format", "pt2"), std::pair("byteorder", "little")}) {
    if (!Has(record)) continue;
    PF_ASSIGN_OR_RETURN(const std::string text, ReadText(record));
    if (text != wanted) {
      return absl::InvalidArgumentError(
          absl::StrCat(record, ": ", Quote(text), ", where \"", wanted, "\" is accepted"));
    }
  }
  return absl::OkStatus();
}

bool Archive::Has(const std::string& record) const {
  return CatchTorch(record, [&] { return reader_->hasRecord(record) ? absl::OkStatus() : absl::NotFoundError(record); })
      .ok();
}

absl::StatusOr<int64_t> Archive::SizeOf(const std::string& record) const {
  int64_t size = 0;
  PF_RETURN_IF_ERROR(CatchTorch(Shorten(record), [&]() -> absl::Status {
    if (!reader_->hasRecord(record)) return absl::InvalidArgumentError("the archive has no such record");
    const size_t bytes = reader_->getRecordSize(record);
    if (bytes > static_cast<size_t>(limits_.tensor_bytes)) {
      return absl::InvalidArgumentError(absl::StrCat("its ", bytes, " bytes are more than ", limits_.tensor_bytes));
    }
    if (bytes > bytes_) {
      return absl::InvalidArgumentError(absl::StrCat("its ", bytes, " bytes are more than the archive's ", bytes_,
                                                     ", and no record may be compressed"));
    }
    size = static_cast<int64_t>(bytes);
    return absl::OkStatus();
  }));
  return size;
}

absl::Status Archive::Read(const std::string& record, void* into, int64_t bytes) const {
  return CatchTorch(Shorten(record), [&] {
    reader_->getRecord(record, into, static_cast<size_t>(bytes));
    return absl::OkStatus();
  });
}

absl::StatusOr<std::string> Archive::ReadText(const std::string& record) const {
  PF_ASSIGN_OR_RETURN(const int64_t bytes, SizeOf(record));
  if (bytes > limits_.json_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(Shorten(record), ": its ", bytes, " bytes are more than ", limits_.json_bytes));
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  PF_RETURN_IF_ERROR(Read(record, text.data(), bytes));
  return text;
}

using Table = std::map<std::string, StoredTensor>;

std::vector<int64_t> SizesOf(const TensorType& type) {
  std::vector<int64_t> sizes;
  sizes.reserve(type.sizes.size());
  for (const Size& size : type.sizes) sizes.push_back(size.number);
  return sizes;
}

std::string TypeText(const TensorType& type) {
  return absl::StrCat(AbslView(kDTypeNames.Name(type.dtype)), " [", absl::StrJoin(SizesOf(type), ", "), "]");
}

// Returns the number of bytes from the beginning of the file to the end of the tensor's last element. Returns -1 if
// this number exceeds 64 bits.
int64_t BytesUsed(const StoredTensor& stored, int64_t element) {
  int64_t last = stored.offset;
  for (size_t i = 0; i < stored.strides.size(); ++i) {
    const int64_t size = stored.type.sizes[i].number;
    if (size == 0) return 0;
    int64_t step = 0;
    if (__builtin_mul_overflow(size - 1, stored.strides[i], &step) || __builtin_add_overflow(last, step, &last))
      return -1;
  }
  int64_t bytes = 0;
  const bool over = __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, element, &bytes);
  return over ? -1 : bytes;
}

// Returns the number of bytes of all elements, with repeated elements counted each time. Returns -1 if it exceeds 64
// bits.
int64_t BytesOf(const StoredTensor& stored, int64_t element) {
  int64_t bytes = element;
  for (const Size& size : stored.type.sizes) {
    if (size.number == 0) return 0;
    if (bytes >= 0 && __builtin_mul_overflow(bytes, size.number, &bytes)) bytes = -1;
  }
  return bytes;
}

class WeightReader {
 public:
  WeightReader(const Archive& archive, const Limits& limits) : archive_(archive), limits_(limits) {}

  absl::StatusOr<std::vector<at::Tensor>> Read(const Program& program) {
    PF_ASSIGN_OR_RETURN(const Table weights, ReadTable("data/weights/", program.form, "_weights_config.json"));
    PF_ASSIGN_OR_RETURN(const Table constants, ReadTable("data/constants/", program.form, "_constants_config.json"));
    std::vector<at::Tensor> tensors;
    tensors.reserve(program.state.size());
    for (const State& state : program.state) {
      PF_ASSIGN_OR_RETURN(at::Tensor tensor, TensorOf(state, weights, constants));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

 private:
  absl::StatusOr<Table> ReadTable(const char* folder, const std::string& form, const char* ending) const {
    const std::string record = absl::StrCat(folder, form, ending);
    if (!archive_.Has(record)) return Table();
    PF_ASSIGN_OR_RETURN(const std::string text, archive_.ReadText(record));
    return DecodeTensorTable(record, text, limits_);
  }

  absl::StatusOr<at::Tensor> TensorOf(const State& state, const Table& weights, const Table& constants) {
    const std::string what = absl::StrCat(AbslView(kStateKindNames.Name(state.kind)), " ", Shorten(state.name));
    const char* folder = "data/weights/";
    auto found = weights.find(state.name);
    if (found == weights.end() || state.kind == StateKind::kConstant) {
      folder = "data/constants/";
      found = constants.find(state.name);
      if (found == constants.end())
        return absl::InvalidArgumentError(absl::StrCat(what, ": the archive has no such tensor"));
    }
    const StoredTensor& stored = found->second;
    if (stored.type.dtype != state.type.dtype || stored.type.sizes != state.type.sizes) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": is stored as ", TypeText(stored.type),
                                                     ", where the graph takes ", TypeText(state.type)));
    }
    absl::StatusOr<at::Tensor> tensor = View(folder + stored.file, stored, state.kind == StateKind::kParameter);
    if (!tensor.ok()) return Annotate(tensor.status(), what);
    if (state.kind == StateKind::kConstant) return tensor;
    const auto [shared, added] = shared_.emplace(state.name, *tensor);
    if (added || shared->second.is_same(*tensor)) return tensor;
    if (!SameBytes(shared->second, *tensor)) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": differs between the forms, which share it by name"));
    }
    return shared->second;
  }

  static bool SameBytes(const at::Tensor& a, const at::Tensor& b) {
    if (a.sizes() != b.sizes() || a.strides() != b.strides() || a.scalar_type() != b.scalar_type()) return false;
    if (a.requires_grad() != b.requires_grad()) return false;
    const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
    return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
  }

  // Returns the tensor as a view of its record's bytes. Equal tensors share one view.
  absl::StatusOr<at::Tensor> View(const std::string& record, const StoredTensor& stored, bool is_parameter) {
    const at::ScalarType type = ScalarTypeOf(stored.type.dtype);
    const bool requires_grad = is_parameter && stored.type.requires_grad;
    if (requires_grad && !at::isFloatingType(type)) {
      return absl::InvalidArgumentError(absl::StrCat("requires_grad: ", TypeText(stored.type), " has no gradient"));
    }
    const Key key{record, type, SizesOf(stored.type), stored.strides, stored.offset, requires_grad};
    if (const auto made = views_.find(key); made != views_.end()) return made->second;
    const auto element = static_cast<int64_t>(c10::elementSize(type));
    PF_ASSIGN_OR_RETURN(const int64_t bytes, archive_.SizeOf(record));
    const int64_t used = BytesUsed(stored, element);
    if (used < 0 || used > bytes || bytes % element != 0) {
      return absl::InvalidArgumentError(absl::StrCat(Shorten(record), ": its ", bytes, " bytes are not those of ",
                                                     TypeText(stored.type), " at offset ", stored.offset));
    }
    // With a stride of 0, a few bytes could stand for a tensor of any size. Copies of the tensor and the optimizer's
    // moments would take the full size.
    if (const int64_t all = BytesOf(stored, element); all < 0 || all > bytes) {
      return absl::InvalidArgumentError(absl::StrCat(TypeText(stored.type), " repeats the elements of its ", bytes,
                                                     " bytes; call contiguous() in the module"));
    }
    at::Tensor file;
    PF_RETURN_IF_ERROR(ReadFile(record, bytes, file));
    at::Tensor tensor;
    PF_RETURN_IF_ERROR(CatchTorch(Shorten(record), [&] {
      tensor = at::empty({0}, type).set_(file.storage(), stored.offset, SizesOf(stored.type), stored.strides);
      // Each record is checked once, even if several tensors are views of it.
      if (type == at::kBool && used > 0 && checked_bools_.insert(record).second) {
        const auto* values = static_cast<const uint8_t*>(file.const_data_ptr());
        if (std::any_of(values, values + bytes, [](uint8_t value) { return value > 1; })) {
          return absl::InvalidArgumentError("a bool is neither 0 nor 1");
        }
      }
      tensor.set_requires_grad(requires_grad);
      return absl::OkStatus();
    }));
    views_.emplace(key, tensor);
    return tensor;
  }

  absl::Status ReadFile(const std::string& record, int64_t bytes, at::Tensor& into) {
    if (const auto read = files_.find(record); read != files_.end()) {
      into = read->second;
      return absl::OkStatus();
    }
    read_ += bytes;
    if (read_ > limits_.tensor_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("the tensors have more than ", limits_.tensor_bytes, " bytes"));
    }
    if (read_ > archive_.bytes()) {
      return absl::InvalidArgumentError(absl::StrCat("the tensors have more than the archive's ", archive_.bytes(),
                                                     " bytes; none may be compressed"));
    }
    PF_RETURN_IF_ERROR(CatchTorch(Shorten(record), [&] {
      into = at::empty({bytes}, at::kByte);
      return absl::OkStatus();
    }));
    if (bytes > 0) PF_RETURN_IF_ERROR(archive_.Read(record, into.mutable_data_ptr(), bytes));
    files_.emplace(record, into);
    return absl::OkStatus();
  }

  using Key = std::tuple<std::string, at::ScalarType, std::vector<int64_t>, std::vector<int64_t>, int64_t, bool>;
  const Archive& archive_;
  const Limits& limits_;
  int64_t read_ = 0;
  std::map<std::string, at::Tensor> files_;  // by record: its bytes
  std::set<std::string> checked_bools_;      // records whose bytes are all 0 or 1
  std::map<Key, at::Tensor> views_;
  std::map<std::string, at::Tensor> shared_;  // parameters and buffers by name
};

// Reads the tensors of each program's state to the CPU, in the order of the state. If tensors have equal file, type
// and shape, they become one tensor. Examples are tied parameters, and the parameters and buffers of one name in both
// forms. Parameters require gradients if the file says so. Errors: InvalidArgument or DataLoss that names the tensor.
absl::StatusOr<std::vector<std::vector<at::Tensor>>> ReadWeights(const Archive& archive,
                                                                 const std::vector<Program>& programs,
                                                                 const Limits& limits) {
  WeightReader reader(archive, limits);
  std::vector<std::vector<at::Tensor>> tensors;
  tensors.reserve(programs.size());
  for (const Program& program : programs) {
    PF_ASSIGN_OR_RETURN(std::vector<at::Tensor> read, reader.Read(program));
    tensors.push_back(std::move(read));
  }
  return tensors;
}

std::string TypeOf(const Input& input) {
  if (input.kind != ValueKind::kTensor) return std::string(kValueKindNames.Name(input.kind));
  return absl::StrCat(AbslView(kDTypeNames.Name(input.type.dtype)), " of ", input.type.sizes.size(), " dimensions");
}

// Checks that two forms take equal inputs, since one batch serves both.
absl::Status CheckEqualInputs(const Program& a, const Program& b) {
  const auto text = [](const Program& program) {
    std::string names;
    for (const Input& input : program.inputs)
      absl::StrAppend(&names, names.empty() ? "" : ", ", TypeOf(input), " ", Shorten(input.name));
    return names;
  };
  if (text(a) == text(b)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      CutMessage(absl::StrCat("forms: ", a.form, " takes ", text(a), ", and ", b.form, " takes ", text(b)), 600));
}

absl::StatusOr<LoadedProgram> Load(const Archive& archive, const Limits& limits) {
  std::vector<Program> programs;
  programs.reserve(archive.forms().size());
  for (const std::string& form : archive.forms()) {
    PF_ASSIGN_OR_RETURN(const std::string text, archive.ReadText(absl::StrCat("models/", form, ".json")));
    PF_ASSIGN_OR_RETURN(Program program, DecodeProgram(form, text, limits));
    if (absl::Status status = CheckOperators(program); !status.ok()) return Annotate(status, form);
    programs.push_back(std::move(program));
  }
  if (programs.size() == 2) PF_RETURN_IF_ERROR(CheckEqualInputs(programs[0], programs[1]));
  PF_ASSIGN_OR_RETURN(std::vector<std::vector<at::Tensor>> state, ReadWeights(archive, programs, limits));
  LoadedProgram loaded;
  for (size_t i = 0; i < programs.size(); ++i) {
    Form& form = loaded.forms.emplace_back();
    form.program = std::make_shared<const Program>(std::move(programs[i]));
    form.state = std::move(state[i]);
    const auto bound = Interpreter::Make(form.program, form.state);
    if (!bound.ok()) return Annotate(bound.status(), form.program->form);
  }
  return loaded;
}

// Calls open() to open an archive, and loads its program. Both run within CatchTorch.
template <class Open>
absl::StatusOr<LoadedProgram> Guarded(const Open& open, const Limits& limits) {
  LoadedProgram loaded;
  PF_RETURN_IF_ERROR(CatchTorch("program", [&]() -> absl::Status {
    PF_ASSIGN_OR_RETURN(const Archive archive, open());
    PF_ASSIGN_OR_RETURN(loaded, Load(archive, limits));
    return absl::OkStatus();
  }));
  return loaded;
}

}  // namespace

absl::StatusOr<LoadedProgram> LoadProgram(const std::filesystem::path& path, const Limits& limits) {
  return Guarded([&] { return Archive::Open(path, limits); }, limits);
}

absl::StatusOr<LoadedProgram> LoadProgramFromBytes(std::string_view archive, const Limits& limits) {
  return Guarded([&] { return Archive::OfBytes(archive, limits); }, limits);
}

}  // namespace permafrost::program
