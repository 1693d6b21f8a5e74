// Runs a package of AOTInductor without Python, once or more often:
//
//     run_package MODEL.pt2 INPUTS OUTPUTS [CALLS]
//
// A file of tensors has one line of text for each tensor, its type and its sizes ("float32 1 3 8 8"),
// an empty line, and then the values of all tensors, row by row, in the processor's byte order.
// The milliseconds of each call go to the standard output, one line a call.

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

const std::map<std::string, at::ScalarType> kTypes = {
    {"float32", at::kFloat},    {"float64", at::kDouble}, {"float16", at::kHalf},
    {"bfloat16", at::kBFloat16}, {"int64", at::kLong},     {"int32", at::kInt},
    {"int16", at::kShort},      {"int8", at::kChar},      {"uint8", at::kByte},
    {"bool", at::kBool},
};

at::ScalarType type_named(const std::string& name) {
  const auto found = kTypes.find(name);
  if (found == kTypes.end()) {
    throw std::runtime_error("a tensor cannot be of type '" + name + "'");
  }
  return found->second;
}

std::string name_of(at::ScalarType type) {
  for (const auto& [name, known] : kTypes) {
    if (known == type) {
      return name;
    }
  }
  throw std::runtime_error("the model returns a tensor of a type that no file of tensors has");
}

std::vector<at::Tensor> read_tensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<at::Tensor> tensors;
  std::string line;
  while (std::getline(file, line) && !line.empty()) {
    std::istringstream words(line);
    std::string type;
    words >> type;
    std::vector<int64_t> sizes;
    for (int64_t size = 0; words >> size;) {
      sizes.push_back(size);
    }
    tensors.push_back(at::empty(sizes, type_named(type)));
  }
  for (auto& tensor : tensors) {
    file.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
  }
  if (!file) {
    throw std::runtime_error(path + " is missing or ends before its last value");
  }
  return tensors;
}

void write_tensors(const std::string& path, const std::vector<at::Tensor>& tensors) {
  std::ofstream file(path, std::ios::binary);
  std::vector<at::Tensor> rows;
  for (const auto& tensor : tensors) {
    rows.push_back(tensor.cpu().contiguous());
    file << name_of(rows.back().scalar_type());
    for (const auto size : rows.back().sizes()) {
      file << ' ' << size;
    }
    file << '\n';
  }
  file << '\n';
  for (const auto& row : rows) {
    file.write(static_cast<const char*>(row.data_ptr()), static_cast<std::streamsize>(row.nbytes()));
  }
  if (!file) {
    throw std::runtime_error("cannot write " + path);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: run_package MODEL.pt2 INPUTS OUTPUTS [CALLS]\n";
    return 2;
  }
  try {
    const c10::InferenceMode without_gradients;
    torch::inductor::AOTIModelPackageLoader model(argv[1]);
    const auto inputs = read_tensors(argv[2]);
    const int calls = argc > 4 ? std::atoi(argv[4]) : 1;
    std::vector<at::Tensor> outputs;
    for (int call = 0; call < calls; ++call) {
      const auto began = std::chrono::steady_clock::now();
      outputs = model.run(inputs);
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - began;
      std::cout << took.count() << '\n';
    }
    write_tensors(argv[3], outputs);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
