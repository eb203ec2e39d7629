// Shell completions, generated from the tree of the command line.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/commands.h"

namespace permafrost::client {
namespace {

struct CompletionOption {
  std::vector<std::string> names;  // with their dashes
  std::string help;
  bool takes_value = false, takes_file = false;
  std::vector<std::string> choices;
  // The command group whose `list` names the values: "job", "dataset", "program" or "context"; else empty.
  std::string group;
};

struct CompletionCommand {
  std::string path;                                        // "job submit"; empty for the program itself
  std::vector<std::pair<std::string, std::string>> below;  // name and help of subcommands
  std::vector<CompletionOption> options;                   // options of this command
  std::string group;                                       // CompletionOption::group of the argument without a flag
};

std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type.find('|') == std::string::npos) return {};
  return absl::StrSplit(type, '|');
}

CompletionOption OptionOf(const CLI::Option& option) {
  CompletionOption out;
  for (const std::string& name : option.get_lnames()) out.names.push_back(absl::StrCat("--", name));
  for (const std::string& name : option.get_snames()) out.names.push_back(absl::StrCat("-", name));
  out.help = option.get_description();
  out.takes_value = option.get_items_expected_max() > 0;
  out.takes_file = out.takes_value && (option.get_type_name() == "FILE" || option.get_type_name() == "PATH");
  if (out.takes_value) out.choices = ChoicesOf(option);
  out.group = option.get_type_name() == "JOB" ? "job"
              : option.check_lname("dataset") ? "dataset"
              : option.check_lname("program") ? "program"
              : option.check_lname("context") ? "context"
                                              : "";
  return out;
}

// Returns CompletionCommand::group for an argument without a flag.
std::string GroupOf(const CLI::Option& option, const std::string& path) {
  const std::string& name = option.get_single_name();
  if (name == "ID" || name == "JOB") return "job";
  // Completes neither the name in `context set`, which may be new, nor the name in an import, which is new.
  if (name == "NAME" && (path == "context use" || path == "context remove")) return "context";
  if (name != "NAME" || path.ends_with(" import")) return "";
  return path.starts_with("dataset ") ? "dataset" : path.starts_with("program ") ? "program" : "";
}

void AddCompletions(const CLI::App& app, const std::string& path, std::vector<CompletionCommand>& commands) {
  CompletionCommand command{.path = path, .below = {}, .options = {}, .group = {}};
  for (const CLI::Option* option : app.get_options()) {
    CompletionOption out = OptionOf(*option);
    if (out.names.empty()) command.group = GroupOf(*option, path);
    if (!out.names.empty()) command.options.push_back(std::move(out));
  }
  const auto below = app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); });
  for (const CLI::App* sub : below) command.below.emplace_back(sub->get_name(), sub->get_description());
  commands.push_back(std::move(command));
  for (const CLI::App* sub : below) {
    AddCompletions(*sub, path.empty() ? sub->get_name() : absl::StrCat(path, " ", sub->get_name()), commands);
  }
}

// Returns all commands. The `options` of each command are its own options first, then the global options, which may
// follow every command.
std::vector<CompletionCommand> CompletionsOf(const CLI::App& app) {
  std::vector<CompletionCommand> commands;
  AddCompletions(app, "", commands);
  const std::vector<CompletionOption> global = commands.front().options;
  for (CompletionCommand& command : commands) {
    if (command.path.empty()) continue;
    for (const CompletionOption& option : global) {
      const auto stands_there = [&option](const CompletionOption& own) { return own.names == option.names; };
      if (std::ranges::none_of(command.options, stands_there)) command.options.push_back(option);
    }
  }
  return commands;
}

// Puts a text in single quotes for a POSIX shell.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Lines of `case` statements for bash and zsh, in which `case` works alike.
struct CaseTables {
  std::string steps;    // "PATH:WORD" patterns that lead to a subcommand
  std::string valued;   // "PATH:OPTION" patterns of options that take a value
  std::string choices;  // "PATH:OPTION") offers='...';;
  std::string words;    // "PATH") offers='...';;
};

CaseTables TablesOf(const CLI::App& app) {
  CaseTables tables;
  std::vector<std::string> steps, valued;
  for (const CompletionCommand& command : CompletionsOf(app)) {
    std::vector<std::string> words;
    for (const auto& [name, help] : command.below) {
      steps.push_back(absl::StrCat("\"", command.path, ":", name, "\""));
      words.push_back(name);
    }
    for (const CompletionOption& option : command.options) {
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) {
        words.push_back(name);
        patterns.push_back(absl::StrCat("\"", command.path, ":", name, "\""));
      }
      if (!option.takes_value) continue;
      valued.insert(valued.end(), patterns.begin(), patterns.end());
      const std::string values =
          option.takes_file ? "files=1" : absl::StrCat("offers=", Quoted(absl::StrJoin(option.choices, " ")));
      absl::StrAppend(&tables.choices, "      ", absl::StrJoin(patterns, "|"), ") ", values, ";;\n");
    }
    absl::StrAppend(&tables.words, "      \"", command.path, "\") offers=", Quoted(absl::StrJoin(words, " ")), ";;\n");
  }
  tables.steps = absl::StrJoin(steps, "|");
  tables.valued = absl::StrJoin(valued, "|");
  return tables;
}

// The end of a shell command that asks the server for the names of $group in JSON. The command begins with the
// program's name and the words that name the server. The command takes at most a second, and prints nothing if there
// is no server. bash expands the offered names, and would run commands within them. So the code drops each name that
// is not a valid ID (server/base/id.h).
constexpr char kAskNames[] =
    " --timeout 1 --output json $group list 2>/dev/null </dev/null |\n"
    "      grep -o \"\\\"name\\\":\\\"${group}s/[a-z][a-z0-9-]*\\\"\" | sed 's/.*\\///; s/\"$//')\"\n";

// The end of a shell command that lists contexts, whose names (IsContextName) are keys of the JSON. The command asks
// no server.
constexpr char kAskContexts[] =
    " --output json context list 2>/dev/null </dev/null |\n"
    "      sed 's/^.*\"contexts\":{//' | grep -o '\"[A-Za-z0-9][A-Za-z0-9._-]*\":\"' | sed 's/^\"//; s/\":\"$//')\"\n";

// Shell code for bash and zsh that sets the array `server` from "$@", the words before the present one.
constexpr char kFindServer[] =
    "    for word in \"$@\"; do\n"
    "      case $before in --server|--context) server=(\"$before\" \"$word\");; esac\n"
    "      case $word in --server=*|--context=*) server=(\"$word\");; esac\n"
    "      before=$word\n"
    "    done\n";

// Returns shell code for bash and zsh that adds the names of jobs, datasets, programs or contexts to `offers` if they
// may stand at this place. `program` is the program as the user typed it.
std::string NamesBody(const CLI::App& app, const std::string& program) {
  std::map<std::string, std::vector<std::string>> options, commands;
  for (const CompletionCommand& command : CompletionsOf(app)) {
    if (!command.group.empty()) commands[command.group].push_back(absl::StrCat("\"", command.path, "\""));
    for (const CompletionOption& option : command.options) {
      if (option.group.empty()) continue;
      options[option.group].push_back(absl::StrCat("\"", command.path, ":", option.names.front(), "\""));
    }
  }
  const auto cases = [](const std::map<std::string, std::vector<std::string>>& groups) {
    std::string out;
    for (const auto& [group, patterns] : groups) {
      absl::StrAppend(&out, "      ", absl::StrJoin(patterns, "|"), ") group=", group, ";;\n");
    }
    return out;
  };
  return absl::StrCat(
      "  local group= before=\n"
      "  local -a server\n"
      "  server=()\n"
      "  if [ -n \"$value\" ]; then\n"
      "    case \"$at:$prev\" in\n",
      cases(options),
      "    esac\n"
      "  elif [[ $cur != -* ]]; then\n"
      "    case \"$at\" in\n",
      cases(commands),
      "    esac\n"
      "  fi\n"
      "  if [ \"$group\" = context ]; then\n"
      "    offers=\"$offers $(\"",
      program, "\"", kAskContexts, "  elif [ -n \"$group\" ]; then\n", kFindServer, "    offers=\"$offers $(\"",
      program, "\" ${server[@]+\"${server[@]}\"}", kAskNames, "  fi\n");
}

// The fish function that lists names. Its argument is the group.
constexpr char kNamesInFish[] =
    "function __permafrost_names\n"
    "  set -l words (commandline -opc)\n"
    "  if test \"$argv[1]\" = context\n"
    "    $words[1] --output json context list 2>/dev/null </dev/null |\n"
    "      string replace -r '^.*\"contexts\":\\\\{' '' |\n"
    "      string match -arg '\"([A-Za-z0-9][A-Za-z0-9._-]*)\":\"'\n"
    "    return\n"
    "  end\n"
    "  set -l server\n"
    "  set -l before ''\n"
    "  for word in $words[2..-1]\n"
    "    switch $before\n"
    "      case --server --context\n"
    "        set server $before $word\n"
    "    end\n"
    "    switch $word\n"
    "      case '--server=*' '--context=*'\n"
    "        set server $word\n"
    "    end\n"
    "    set before $word\n"
    "  end\n"
    "  $words[1] $server --timeout 1 --output json $argv[1] list 2>/dev/null </dev/null |\n"
    "    string match -arg \"\\\"name\\\":\\\"$argv[1]s/([a-z][a-z0-9-]*)\\\"\"\n"
    "end\n";

// Returns the beginning of a function for bash and zsh. The arguments of the function are the present word and the
// words before it, without the program's name. The code sets `at` to the command in these words (zsh reserves the
// name `path`). It then sets `offers` to the candidates for the present word, or asks for files.
std::string CaseBody(const CaseTables& tables) {
  return absl::StrCat(
      "_permafrost_offer() {\n"
      "  local cur=$1 prev= at= value= word=\n"
      "  shift\n"
      "  for word in \"$@\"; do\n"
      "    if [ -n \"$value\" ]; then value=; continue; fi\n"
      "    case \"$at:$word\" in\n"
      "      ",
      tables.steps,
      ") at=\"${at:+$at }$word\"; continue;;\n"
      "      ",
      tables.valued,
      ") value=1;;\n"
      "    esac\n"
      "  done\n"
      "  prev=$word\n"
      "  local offers= files=\n"
      "  if [ -n \"$value\" ]; then\n"
      "    case \"$at:$prev\" in\n",
      tables.choices,
      "    esac\n"
      "  else\n"
      "    case \"$at\" in\n",
      tables.words,
      "    esac\n"
      "  fi\n");
}

// Returns the script that bash reads. It covers the whole program.
std::string BashCompletion(const CLI::App& app) {
  return absl::StrCat(
      "# bash completion of permafrost. Try it with: source <(permafrost completion bash)\n"
      "_permafrost() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} word joined= i=0\n"
      "  local -a words\n"
      "  words=(\"${COMP_WORDS[0]}\")\n"
      // bash also splits words at = and at colons. If bash has split the present word, that word can only be the
      // value of a flag.
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD}\"; do\n"
      "    case $word in\n"
      "      ''|*[!=:]*) if [ -n \"$joined\" ]; then words[i]+=$word; else words[++i]=$word; fi; joined=;;\n"
      "      *) words[i]+=$word; joined=1;;\n"
      "    esac\n"
      "  done\n"
      "  if [ \"${words[i]}\" != \"$cur\" ]; then\n"
      "    case $cur in *[!=:]*) ;; *) cur=;; esac\n"
      "    word=${words[i]%\"$cur\"}\n"
      "    case $word in [!-]*|*[=:]?*) return;; esac\n"
      "    words[i]=${word%[=:]}\n"
      "    words[++i]=$cur\n"
      "  fi\n"
      "  _permafrost_offer \"$cur\" \"${words[@]:1:i-1}\"\n"
      "}\n",
      CaseBody(TablesOf(app)), NamesBody(app, "${COMP_WORDS[0]}"),
      // macOS has bash 3.2, which lacks mapfile.
      "  if [ -n \"$files\" ]; then\n"
      "    local IFS=$'\\n'\n"
      "    COMPREPLY=($(compgen -f -- \"$cur\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -W \"$offers\" -- \"$cur\"))\n"
      "  fi\n"
      "}\n"
      "complete -o default -F _permafrost permafrost\n");
}

std::string ZshCompletion(const CLI::App& app) {
  return absl::StrCat(
      "#compdef permafrost\n"
      "# zsh completion of permafrost. Put it as _permafrost into a folder of $fpath.\n"
      "_permafrost() {\n"
      "  _permafrost_offer \"${words[CURRENT]}\" \"${(@)words[2,CURRENT-1]}\"\n"
      "}\n",
      CaseBody(TablesOf(app)), NamesBody(app, "${words[1]}"),
      "  if [ -n \"$files\" ]; then _files; elif [ -n \"${offers// }\" ]; then compadd -- ${=offers}; else _files; fi\n"
      "}\n"
      "if [ \"$funcstack[1]\" = _permafrost ]; then _permafrost \"$@\"; else compdef _permafrost permafrost; fi\n");
}

std::string FishCompletion(const CLI::App& app) {
  const CaseTables tables = TablesOf(app);
  const auto cases = [](const std::string& patterns) { return absl::StrReplaceAll(patterns, {{"|", " "}}); };
  std::string out = absl::StrCat(
      "# fish completion of permafrost. Put it as permafrost.fish into ~/.config/fish/completions.\n"
      "function __permafrost_at\n"
      "  set -l at ''\n"
      "  set -l value ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    if test -n \"$value\"\n"
      "      set value ''\n"
      "      continue\n"
      "    end\n"
      "    switch \"$at:$word\"\n"
      "      case ",
      cases(tables.steps),
      "\n"
      "        set at (string trim \"$at $word\")\n"
      "      case ",
      cases(tables.valued),
      "\n"
      "        set value 1\n"
      "    end\n"
      "  end\n"
      "  test \"$at\" = \"$argv[1]\"\n"
      "end\n",
      kNamesInFish, "complete -c permafrost -f\n");
  // Puts a text in single quotes for fish.
  const auto quoted = [](const std::string& text) {
    return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}, {"\n", " "}}), "'");
  };
  for (const CompletionCommand& command : CompletionsOf(app)) {
    const std::string head =
        absl::StrCat("complete -c permafrost -n ", quoted(absl::StrCat("__permafrost_at \"", command.path, "\"")));
    for (const auto& [name, help] : command.below) {
      absl::StrAppend(&out, head, " -a ", name, " -d ", quoted(help), "\n");
    }
    const auto names_of = [](const std::string& group) {
      return absl::StrCat(" -a '(__permafrost_names ", group, ")'");
    };
    if (!command.group.empty()) absl::StrAppend(&out, head, names_of(command.group), "\n");
    for (const CompletionOption& option : command.options) {
      absl::StrAppend(&out, head);
      for (const std::string& name : option.names) {
        const bool is_long = name.starts_with("--");
        absl::StrAppend(&out, is_long ? " -l " : " -s ", name.substr(is_long ? 2 : 1));
      }
      if (option.takes_file) {
        out += " -rF";
      } else if (option.takes_value) {
        absl::StrAppend(&out, " -x");
        if (!option.choices.empty()) absl::StrAppend(&out, " -a ", quoted(absl::StrJoin(option.choices, " ")));
        if (!option.group.empty()) absl::StrAppend(&out, names_of(option.group));
      }
      absl::StrAppend(&out, " -d ", quoted(option.help), "\n");
    }
  }
  return out;
}

}  // namespace

void AddCompletionCommands(CLI::App& app, Command& chosen) {
  CLI::App* completion =
      app.add_subcommand("completion", "A script that completes permafrost's command line in a shell")
          ->require_subcommand(1);
  using Script = std::string (*)(const CLI::App&);
  const auto add = [&](const char* shell, const char* help, Script script) {
    completion->add_subcommand(shell, help)->callback([&app, &chosen, script] {
      chosen = [&app, script](Session& session) {
        session.Print(script(app));
        return ExitCode::kOk;
      };
    });
  };
  add("bash", "For bash: source <(permafrost completion bash)", BashCompletion);
  add("zsh", "For zsh: permafrost completion zsh > FOLDER/_permafrost, a folder of $fpath", ZshCompletion);
  add("fish", "For fish: permafrost completion fish > ~/.config/fish/completions/permafrost.fish", FishCompletion);
}

}  // namespace permafrost::client
