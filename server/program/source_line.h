// Where a module says what a node does, for messages.
// Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace permafrost::program {

// stack_trace: what torch.export keeps of Python's stack, outermost call first. nn_module_stack: the modules around the
// call. Returns "model.py:12 in forward: h = self.norm(h), in convs.0 (GINEConv)" of the innermost line that is not a
// library's, or else of the innermost one. Empty where neither says anything.
std::string SourceLine(std::string_view stack_trace, std::string_view nn_module_stack);

// Returns one text for several lines that SourceLine gave: the first, and the places of up to eight others, as
// "model.py:12 in forward: h = self.norm(h), in convs.0 (GINEConv); with model.py:13, model.py:15".
std::string JoinedLines(std::span<const std::string> lines);

}  // namespace permafrost::program
