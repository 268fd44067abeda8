//! Preventive locks: what each transaction claims before it reads, in this order.
//!
//! | transaction | claims |
//! | --- | --- |
//! | Place Bid, Change User Info | to write the auction or the person with all that is below |
//! | Add Mail | to append to the mailbox, before the item is read; to write it if it may be full |
//! | Register | to append to the list of persons |
//! | Add Item | to append to the region, and to the list of open auctions, before either is read |
//! | Check Mails | to read the item; to read the mailbox with all that is below |
//! | Read Item | to read the item with all that is below |
//! | Read Region | to read the region with all that is below |
//! | Read Seller Info | to read the person with all that is below, when the index has found it |
//!
//! The label of a mailbox is known beforehand, as that of its item is. A claim behind the reading
//! of the item would be too late where an item is locked as a whole: to a lock depth of 3 or less,
//! two transactions that have read it would both wait to write. Under MGL two Add Mails on one item
//! still may, because they read it behind the claim: there a node is read with all that is below.

use tidegate_workload::xmark::{AuctionWork, ChildAccess, EntryList};
use tidegate_xml::label::Label;
use tidegate_xml::store::{Claim, XmlStoreError};

use super::visit::Visit;

impl Visit<'_, '_> {
    /// Claims, if the transaction is preventive.
    pub(super) fn claim(&self, claim: Claim<'_>) -> Result<(), XmlStoreError> {
        if self.transaction.preventive { self.document.claim(claim) } else { Ok(()) }
    }

    /// Claims what is needed at the node of this number among the entries, before it is read. One
    /// that is not preventive and reads streams locks the node together with its children.
    pub(super) fn claim_entry(
        &self,
        (list, number): (EntryList, usize),
        node: &Label,
    ) -> Result<(), XmlStoreError> {
        let Visit { transaction, .. } = self;
        if transaction.access == ChildAccess::Stream && !transaction.preventive {
            // The children are asked for next in all of them. In two steps, the node and then the
            // children, the second would be a conversion, which passes a writer that waits for it,
            // also when a deadlock has ended the transaction and it begins again.
            self.document.claim(Claim::ReadChildren(node))?;
        }
        let mailbox = || self.site.mailbox(list, number).unwrap_or(node);
        match self.transaction.work {
            AuctionWork::PlaceBid(_) | AuctionWork::ChangeUserInfo(_) => {
                self.claim(Claim::WriteSubtree(node))
            }
            AuctionWork::CheckMails => {
                self.claim(Claim::ReadNode(node))?;
                self.claim(Claim::ReadSubtree(mailbox()))
            }
            AuctionWork::AddMail(_) if self.transaction.keep.is_some() => {
                self.claim(Claim::WriteSubtree(mailbox()))
            }
            AuctionWork::AddMail(_) => self.claim(Claim::Append(mailbox())),
            AuctionWork::ReadItem => self.claim(Claim::ReadSubtree(node)),
            AuctionWork::ReadSellerInfo(_)
            | AuctionWork::Register(_)
            | AuctionWork::AddItem(_)
            | AuctionWork::ReadRegion(_) => Ok(()),
        }
    }
}
