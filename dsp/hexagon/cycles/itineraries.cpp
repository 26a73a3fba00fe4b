/* Prints LLVM's itineraries of Hexagon instructions, one a line: text | for each register in it, its roles:
 * "d" or "u" (defined, used), the cycle, and in hexadecimal the set of forwarding paths.
 * LLVM keeps its assembly syntax to itself, so the instructions are found by disassembling random words.
 * usage: itineraries CPU FEATURES WORDS; compiled and called by `python -m dsp.hexagon.cycles`. */
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/MC/MCInst.h"
#include "llvm/MC/MCInstPrinter.h"
#include "llvm/MC/MCInstrDesc.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCInstrItineraries.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/MCTargetOptions.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

using namespace llvm;

extern "C" {
void LLVMInitializeHexagonTargetInfo();
void LLVMInitializeHexagonTarget();
void LLVMInitializeHexagonTargetMC();
void LLVMInitializeHexagonDisassembler();
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  LLVMInitializeHexagonTargetInfo();
  LLVMInitializeHexagonTarget();
  LLVMInitializeHexagonTargetMC();
  LLVMInitializeHexagonDisassembler();
  std::string problem;
  Triple triple("hexagon-unknown-elf");
  const Target *target = TargetRegistry::lookupTarget(triple.str(), problem);
  if (!target) return 1;
  std::unique_ptr<MCRegisterInfo> registers(target->createMCRegInfo(triple.str()));
  std::unique_ptr<MCAsmInfo> assembly(target->createMCAsmInfo(*registers, triple.str(), MCTargetOptions()));
  std::unique_ptr<MCSubtargetInfo> subtarget(target->createMCSubtargetInfo(triple.str(), argv[1], argv[2]));
  std::unique_ptr<MCInstrInfo> instructions(target->createMCInstrInfo());
  MCContext context(triple, assembly.get(), registers.get(), subtarget.get());
  std::unique_ptr<MCDisassembler> disassembler(target->createMCDisassembler(*subtarget, context));
  std::unique_ptr<MCInstPrinter> printer(
      target->createMCInstPrinter(triple, 0, *assembly, *instructions, *registers));
  InstrItineraryData itineraries = subtarget->getInstrItineraryForCPU(argv[1]);

  std::set<unsigned> seen;
  uint64_t state = 1;
  for (long n = std::atol(argv[3]); n > 0; n--) {
    /* Each value of the bits that hold an instruction's class, then bits that are seldom one: many have to be 0. */
    uint32_t low = ~0u;
    for (long density = n / 2048 % 3; density >= 0; density--) {
      state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
      low &= uint32_t(state >> 32);
    }
    uint32_t word = uint32_t(n) << 21 | (low & 0x1fffff) | 0xc000; /* a packet of one instruction */
    uint8_t bytes[4] = {uint8_t(word), uint8_t(word >> 8), uint8_t(word >> 16), uint8_t(word >> 24)};
    MCInst packet;
    uint64_t size = 0;
    if (disassembler->getInstruction(packet, size, ArrayRef<uint8_t>(bytes, 4), 0, nulls()) != MCDisassembler::Success)
      continue;
    if (packet.getNumOperands() != 2 || !packet.getOperand(1).isInst()) continue;
    const MCInst &instruction = *packet.getOperand(1).getInst();
    if (seen.count(instruction.getOpcode())) continue;
    const MCInstrDesc &description = instructions->get(instruction.getOpcode());
    unsigned scheduling = description.getSchedClass();
    std::set<unsigned> used;
    std::string roles;
    bool distinct = instruction.getNumOperands() >= description.getNumOperands(); /* else LLVM cannot print it */
    for (unsigned i = 0; i < instruction.getNumOperands(); i++) {
      const MCOperand &operand = instruction.getOperand(i);
      bool constant = operand.isExpr() && operand.getExpr();
      if (!constant && !(operand.isReg() && operand.getReg())) {
        distinct = false; /* two instructions in a word, or what LLVM cannot print */
        break;
      }
      if (constant) continue;
      bool tied = description.getOperandConstraint(i, MCOI::TIED_TO) >= 0;
      if (!used.insert(operand.getReg()).second && !tied) distinct = false;
      int cycle = -1;
      if (std::optional<unsigned> found = itineraries.getOperandCycle(scheduling, i)) cycle = *found;
      unsigned first = itineraries.Itineraries[scheduling].FirstOperandCycle + i;
      unsigned last = itineraries.Itineraries[scheduling].LastOperandCycle;
      std::string name;
      raw_string_ostream stream(name);
      printer->printRegName(stream, operand.getReg());
      stream.flush();
      roles += name + (i < description.getNumDefs() ? "=d" : "=u") + std::to_string(cycle) + "." +
               utohexstr(first < last ? itineraries.Forwardings[first] : 0, true) + ";";
    }
    if (!distinct) continue;
    std::string text;
    raw_string_ostream stream(text);
    printer->printInst(&packet, 0, "", *subtarget, stream);
    seen.insert(instruction.getOpcode());
    outs() << stream.str() << "|" << roles << "\n";
  }
}
