//! Register and Change User Info.

use tidegate_workload::xmark::{NewPerson, PersonAddress, PersonInfo, PersonProfile};
use tidegate_xml::label::Label;
use tidegate_xml::store::{Claim, Place, XmlStoreError};

use super::models::{ADDRESS, ContentModel, PERSON, PROFILE};
use super::visit::Visit;

/// The children of an element with their places in its content model, in the order of the document.
struct Parts {
    parent: Label,
    model: &'static ContentModel,
    found: Vec<(usize, Label)>,
}

impl Parts {
    /// Returns the first child of a name.
    fn get(&self, name: &str) -> Option<&Label> {
        let place = self.model.place_of(name);
        self.found.iter().find(|(own, _)| Some(*own) == place).map(|(_, label)| label)
    }

    /// Returns where a child of a name belongs that is not there: behind all that precede it.
    fn gap_for(&self, place: usize) -> Place {
        let before = self.found.iter().rfind(|(own, _)| *own <= place);
        let behind = self.found.iter().find(|(own, _)| *own > place);
        match (before, behind) {
            (Some((_, label)), _) => Place::After(label.clone()),
            (None, Some((_, label))) => Place::Before(label.clone()),
            (None, None) => Place::Last(self.parent.clone()),
        }
    }
}

impl Visit<'_, '_> {
    /// Appends a person.
    pub(super) fn register(&self, person: &NewPerson) -> Result<Vec<String>, XmlStoreError> {
        let NewPerson { id, name, email, info } = person;
        self.claim(Claim::Append(&self.site.people))?;
        let new = self.append_behind_last(&self.site.people, "person")?;
        self.set_attribute(&new, "id", &format!("person{id}"))?;
        self.append_leaf(&new, "name", name)?;
        self.append_leaf(&new, "emailaddress", email)?;
        if let Some(phone) = &info.phone {
            self.append_leaf(&new, "phone", phone)?;
        }
        if let Some(address) = &info.address {
            let place = self.append(&new, "address")?;
            self.fill_address(&place, address)?;
        }
        if let Some(profile) = &info.profile {
            let place = self.append(&new, "profile")?;
            self.fill_profile(&place, profile)?;
        }
        Ok(Vec::new())
    }

    fn fill_address(&self, place: &Label, address: &PersonAddress) -> Result<(), XmlStoreError> {
        let PersonAddress { street, city, country, province, zipcode } = address;
        self.append_leaf(place, "street", street)?;
        self.append_leaf(place, "city", city)?;
        self.append_leaf(place, "country", country)?;
        if let Some(province) = province {
            self.append_leaf(place, "province", province)?;
        }
        self.append_leaf(place, "zipcode", zipcode)
    }

    fn fill_profile(&self, place: &Label, profile: &PersonProfile) -> Result<(), XmlStoreError> {
        let PersonProfile { income, interests, education, gender, business, age } = profile;
        self.set_attribute(place, "income", income)?;
        for interest in interests {
            self.append_reference(place, ("interest", "category"), &self.category(*interest))?;
        }
        if let Some(education) = education {
            self.append_leaf(place, "education", education)?;
        }
        if let Some(gender) = gender {
            self.append_leaf(place, "gender", gender)?;
        }
        self.append_leaf(place, "business", business)?;
        if let Some(age) = age {
            self.append_leaf(place, "age", age)?;
        }
        Ok(())
    }

    /// Replaces parts of what a person has told, and inserts those that are not there.
    pub(super) fn change_user_info(&self, info: &PersonInfo) -> Result<Vec<String>, XmlStoreError> {
        let person = self.enter()?;
        let mut parts = self.parts(&person, &PERSON)?;
        if let Some(phone) = &info.phone {
            self.put_leaf(&mut parts, "phone", phone)?;
        }
        if let Some(address) = &info.address {
            match parts.get("address").cloned() {
                Some(place) => self.change_address(&place, address)?,
                None => self.fill_address(&self.put(&mut parts, "address")?, address)?,
            }
        }
        if let Some(profile) = &info.profile {
            match parts.get("profile").cloned() {
                Some(place) => self.change_profile(&place, profile)?,
                None => self.fill_profile(&self.put(&mut parts, "profile")?, profile)?,
            }
        }
        Ok(Vec::new())
    }

    fn change_address(&self, place: &Label, address: &PersonAddress) -> Result<(), XmlStoreError> {
        let PersonAddress { street, city, country, province, zipcode } = address;
        let mut parts = self.parts(place, &ADDRESS)?;
        self.put_leaf(&mut parts, "street", street)?;
        self.put_leaf(&mut parts, "city", city)?;
        self.put_leaf(&mut parts, "country", country)?;
        if let Some(province) = province {
            self.put_leaf(&mut parts, "province", province)?;
        }
        self.put_leaf(&mut parts, "zipcode", zipcode)
    }

    /// Replaces everything but the interests.
    fn change_profile(&self, place: &Label, profile: &PersonProfile) -> Result<(), XmlStoreError> {
        let PersonProfile { income, interests: _, education, gender, business, age } = profile;
        let mut parts = self.parts(place, &PROFILE)?;
        self.set_attribute(place, "income", income)?;
        if let Some(education) = education {
            self.put_leaf(&mut parts, "education", education)?;
        }
        if let Some(gender) = gender {
            self.put_leaf(&mut parts, "gender", gender)?;
        }
        self.put_leaf(&mut parts, "business", business)?;
        if let Some(age) = age {
            self.put_leaf(&mut parts, "age", age)?;
        }
        Ok(())
    }

    /// Goes through all children of an element.
    fn parts(&self, parent: &Label, model: &'static ContentModel) -> Result<Parts, XmlStoreError> {
        let mut parts = Parts { parent: parent.clone(), model, found: Vec::new() };
        for child in self.children(parent)? {
            let child = child?;
            let name = self.name(&child)?;
            if let Some(place) = name.and_then(|name| parts.model.place_of(&name.local)) {
                parts.found.push((place, child));
            }
        }
        Ok(parts)
    }

    /// Inserts an element that is not there at its place.
    fn put(&self, parts: &mut Parts, name: &str) -> Result<Label, XmlStoreError> {
        let place = parts.model.place_of(name).expect("the model has the name");
        let new = self.insert(&parts.gap_for(place), name)?;
        let at = parts.found.partition_point(|(own, _)| *own <= place);
        parts.found.insert(at, (place, new.clone()));
        Ok(new)
    }

    /// Gives an element with nothing but text another text, or inserts it.
    fn put_leaf(&self, parts: &mut Parts, name: &str, text: &str) -> Result<(), XmlStoreError> {
        let Some(leaf) = parts.get(name) else {
            return self.write(&self.put(parts, name)?, text);
        };
        match self.text_of(leaf)? {
            Some(old) => self.document.set_value(&old, text),
            None => self.write(leaf, text),
        }
    }
}
